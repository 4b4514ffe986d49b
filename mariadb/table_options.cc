/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Options of a table and its indexes. The server keeps them with the definition and shows them; the engine keeps what it needs of
  them in its catalog, because pages leave memory before anybody opens a table.

    COMPRESSION                  how the table's pages are compressed in objects: zstd, lz4, none; default is
                                 terrace_compression's. What is stored stays as it is until its block is stored anew
    PLACEMENT                    KEEP: pages are kept on flash ahead of others; NONE: they never come there; of a table or an
                                 index, which without one has its table's
    WRITE_POLICY                 what a flush does to a page's copy on flash: CLEAN invalidates it, 'DUAL' (a reserved word) rewrites it, AUTO is dual for a
                                 checkpoint and clean else; default is terrace_write_policy's
    FLASH_MIN, FLASH_MAX         bytes of flash that are the table's whatever others read, and that it may have at the most
    BUFFER_MIN, BUFFER_MAX       the same of the object buffer
    FLASH_IOPS, VOLUME_IOPS, OBJECT_IOPS                 reads a second from each tier
    FLASH_BANDWIDTH, VOLUME_BANDWIDTH, OBJECT_BANDWIDTH  and bytes
    FLASH_WRITE_IOPS, FLASH_WRITE_BANDWIDTH, VOLUME_WRITE_…, OBJECT_WRITE_…  the same of writes to each tier

  0 says nothing. Of a partitioned table they hold for each partition.
*/
#include "ha_terrace.h"
#include "globals.h"
#include "table_options.h"

namespace terrace {

static const char *const compressions[]= {"", "none", "lz4", "zstd"};

static ha_create_table_option table_options[]= {
  HA_TOPTION_ENUM("COMPRESSION", compression, "default,none,lz4,zstd", 0),
  HA_TOPTION_ENUM("PLACEMENT", placement, "DEFAULT,KEEP,NONE", 0),
  HA_TOPTION_ENUM("WRITE_POLICY", write_policy, "DEFAULT,AUTO,CLEAN,DUAL", 0),
  HA_TOPTION_NUMBER("FLASH_MIN", flash_min, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("FLASH_MAX", flash_max, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("BUFFER_MIN", buffer_min, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("BUFFER_MAX", buffer_max, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("FLASH_IOPS", flash_iops, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("FLASH_BANDWIDTH", flash_bandwidth, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("VOLUME_IOPS", volume_iops, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("VOLUME_BANDWIDTH", volume_bandwidth, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("OBJECT_IOPS", object_iops, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("OBJECT_BANDWIDTH", object_bandwidth, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("FLASH_WRITE_IOPS", flash_write_iops, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("FLASH_WRITE_BANDWIDTH", flash_write_bandwidth, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("VOLUME_WRITE_IOPS", volume_write_iops, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("VOLUME_WRITE_BANDWIDTH", volume_write_bandwidth, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("OBJECT_WRITE_IOPS", object_write_iops, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_NUMBER("OBJECT_WRITE_BANDWIDTH", object_write_bandwidth, 0, 0, ULONGLONG_MAX, 1),
  HA_TOPTION_END};

/* TABLE: as the table's. The others follow the table's list. */
static ha_create_table_option index_options[]= {
  HA_IOPTION_ENUM("PLACEMENT", placement, "TABLE,DEFAULT,KEEP,NONE", 0),
  HA_IOPTION_END};

void fill_table_options(handlerton *into)
{
  into->table_options= table_options;
  into->index_options= index_options;
}

TableOptions::TableOptions(const TABLE *definition)
{
  const ha_table_option_struct *given= definition->s->option_struct;
  const char *compression= compressions[given ? given->compression : 0];
  all.size= sizeof all;
  all.compression= bytes_of(compression, strlen(compression));
  terrace_rules &rules= all.rules;
  rules.size= sizeof rules;
  if (given)
  {
    rules.placement= static_cast<uint8_t>(given->placement);
    rules.write_policy= static_cast<uint8_t>(given->write_policy);
    rules.flash_min= given->flash_min;
    rules.flash_max= given->flash_max;
    rules.buffer_min= given->buffer_min;
    rules.buffer_max= given->buffer_max;
    rules.flash_iops= given->flash_iops;
    rules.flash_bandwidth= given->flash_bandwidth;
    rules.volume_iops= given->volume_iops;
    rules.volume_bandwidth= given->volume_bandwidth;
    rules.object_iops= given->object_iops;
    rules.object_bandwidth= given->object_bandwidth;
    rules.flash_write_iops= given->flash_write_iops;
    rules.flash_write_bandwidth= given->flash_write_bandwidth;
    rules.volume_write_iops= given->volume_write_iops;
    rules.volume_write_bandwidth= given->volume_write_bandwidth;
    rules.object_write_iops= given->object_write_iops;
    rules.object_write_bandwidth= given->object_write_bandwidth;
  }
  for (uint at= 0; at < definition->s->keys; at++)
  {
    const KEY *key= definition->key_info + at;
    if (key->option_struct && key->option_struct->placement > 0)
      indexes.push_back({sizeof(terrace_placement), bytes_of(key->name.str, key->name.length),
                         static_cast<uint8_t>(key->option_struct->placement - 1)});
  }
  rules.indexes= indexes.data();
  rules.index_count= indexes.size();
}

int32_t TableOptions::apply(const std::string &name) const
{
  if (int32_t code= terrace_table_set_compression(engine, bytes_of(name), all.compression))
    return code;
  return terrace_table_set_rules(engine, bytes_of(name), &all.rules);
}

} // namespace terrace
