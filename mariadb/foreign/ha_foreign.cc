/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Checks of foreign keys, row by row, and what the server asks about them.

  A row of a child comes: one row of the parent is locked, shared. A row of a parent goes: it is locked exclusively, then the child's index is looked at.
  So of the two, in different transactions, one waits for the other, whatever the isolation level is. Children that are there refuse the change, or are
  changed first (ha_cascade.cc). The order is InnoDB's: by this table's index, then by the constraint's name.

  Each row compares the generation of relations: a child may be created while a statement on the parent runs.
*/
#include "ha_terrace.h"
#include "declared.h"
#include "foreign.h"
#include "errors.h"
#include "globals.h"
#include "latest_error.h"
#include <algorithm>
#include <tuple>

using namespace terrace;


void ForeignDeleter::operator()(Foreign *one) const { delete one; }

Foreign *ha_terrace::read_relations_again() const
{
  // The generation first: what changes after it is seen by the next look.
  m_foreign_generation= relations_generation();
  const auto relations= relations_of(m_name);
  m_foreign.reset();
  if (!relations)
    return nullptr;
  m_foreign.reset(new Foreign());
  m_foreign->relations= relations;
  for (const ForeignKey &key : relations->own)
  {
    m_foreign->parents.emplace_back(new Link(key, key.parent(), key.columns, key.parent_columns));
    m_foreign->is_changed|= key.modifies();
  }
  for (const Relations::Child &child : relations->children)
  {
    m_foreign->children.emplace_back(new Link(child.key, child.table, child.key.parent_columns, child.key.columns));
    m_foreign->cascades|= child.key.modifies();
  }
  const auto place= [&](const Link &link) {
    return std::make_tuple(index_over(table->key_info, table->s->keys, link.own), TableName(link.name).database, link.key.name);
  };
  for (auto *links : {&m_foreign->parents, &m_foreign->children})
    std::stable_sort(links->begin(), links->end(), [&](const auto &one, const auto &other) { return place(*one) < place(*other); });
  m_foreign->comes_back= m_foreign->cascades && terrace::cascades_come_back(m_name);
  return m_foreign.get();
}

bool ha_terrace::cascades_come_back() const
{
  const Foreign *foreign= this->foreign();
  return foreign && foreign->comes_back;
}

/** Whether the statement updates columns whose change is followed by changes of other rows. */
bool ha_terrace::cascades_update() const
{
  const Foreign *foreign= this->foreign();
  if (foreign && foreign->cascades)
    for (const auto &link : foreign->children)
      if (ForeignKey::modifies(link->key.on_update))
        for (const std::string &column : link->own)
          for (Field **field= table->field; *field; field++)
            if (same_name((*field)->field_name.str, column) && bitmap_is_set(table->write_set, (*field)->field_index))
              return true;
  return false;
}

/** Whether cascades of the statement may change rows of the table while it reads the table. */
bool ha_terrace::may_change_under_scan(THD *thd) const
{
  const Foreign *foreign= this->foreign();
  const int command= command_of(thd);
  return foreign && foreign->is_changed &&
         (foreign->comes_back || command == SQLCOM_DELETE_MULTI || command == SQLCOM_UPDATE_MULTI || thd->in_sub_stmt || table->triggers ||
          thd->lex->uses_stored_routines());
}

bool ha_terrace::refers_to_itself() const
{
  const Foreign *foreign= this->foreign();
  return foreign && foreign->relations->to_itself;
}

void ha_terrace::close_links()
{
  for (const auto *links : {&m_foreign->parents, &m_foreign->children})
    for (const auto &link : *links)
      link->close();
}

int ha_terrace::foreign_error(int error, const std::string &child, const ForeignKey &key)
{
  const TableName name(child);
  m_foreign_said= quoted(ha_thd(), name) + ", " + key.text(ha_thd(), name.database);
  const char *what= error == HA_ERR_NO_REFERENCED_ROW ? "A child row has no parent: "
                    : error == HA_ERR_ROW_IS_REFERENCED ? "A parent row has a child, or a child cannot be changed with it: " : "A chain of cascades is too long: ";
  keep_foreign_error(ha_thd(), what + m_foreign_said);
  return error;
}

/** Rows of the other table that the statement is loading are there before the look. Handler error. */
int ha_terrace::finish_loads_of(const std::string &name)
{
  for (ha_terrace *other : std::vector<ha_terrace *>(m_session->loads))
    if (other != this && other->m_name == name)
      if (int error= other->finish_load())
        return error;
  return 0;
}

/** The row at hand is the chain's last. */
class StepGuard
{
public:
  explicit StepGuard(Cascades &all) : all(all) {}
  ~StepGuard() { end(); }
  void begin(const std::string &table, const Bytes &row, bool updates)
  {
    all.chain.push_back({&table, std::string(reinterpret_cast<const char *>(row.data()), row.size()), updates, 0});
    begun= true;
  }
  void at(uint index) { all.chain.back().index= index; }
  void end()
  {
    if (begun)
      all.chain.pop_back();
    begun= false;
  }

private:
  Cascades &all;
  bool begun= false;
};

/**
  Looks for the parents of a row that comes, or that gets other values (`old`).
  @param primary  the constraint's index is the primary key: an insert reports this before a duplicate
*/
int ha_terrace::check_parents(const uchar *record, const uchar *old, bool *primary)
{
  THD *thd= ha_thd();
  Foreign *foreign= this->foreign();
  if (!foreign || foreign->parents.empty() || thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS) || !is_current(record))
    return 0;
  const bool copies= is_passing_name(m_name), waits= m_load && m_load_within;
  for (size_t at= 0; at < foreign->parents.size(); at++)
  {
    Link *link= foreign->parents[at].get();
    // What a foreign key itself changes fits the parent as it will be.
    if (m_follows && m_follows->name == link->key.name)
      continue;
    // ALTER copies rows that were checked.
    if (copies && !m_session->is_fresh_key(m_name, link->key.name))
      continue;
    // As in InnoDB: a row is checked again if its entry in the foreign key's index changes, be it in other columns of the index or in the primary key.
    if (link->resolve_own(table) && old && (link->own_index == MAX_KEY ? link->is_same(record, old) : m_indexes[link->own_index].same(record, old) &&
                                                                                                    (m_hidden || m_primary.same(record, old))))
      continue;
    if (int error= link->prepare(thd, table))
      return error;
    // The links of an earlier generation are gone.
    if (m_foreign_generation != relations_generation())
      return check_parents(record, old, primary);
    const bool has_key= link->usable && link->encode(record, &foreign->bytes);
    if (link->usable && !has_key)
      continue;
    if (!link->usable && is_null_in(*link, record))
      continue;
    bool found= false;
    if (has_key && waits && !link->has_history && link->may_find())
    {
      m_awaited.add(link->key.name, foreign->bytes);
      continue;
    }
    if (has_key)
    {
      // A row may be its own parent.
      if (link->name == m_name && link->may_find() && is_own_parent(*link, record))
        continue;
      if (!m_session->loads.empty())
        if (int error= finish_loads_of(link->name))
          return error;
      StepGuard step(m_session->cascades);
      if (old && link->name == m_name && link->may_find() && leaves_own_key(*link, record, old))
      {
        Bytes row;
        encode_primary(old, &row);
        step.begin(m_name, row, false);
        step.at(MAX_KEY);
      }
      if (int error= look_up(link, foreign->bytes, copies, &found))
        return error;
    }
    if (!found)
    {
      // An earlier row is named first.
      m_awaited.end_row();
      if (int error= check_awaited())
        return error;
      if (m_foreign_generation != relations_generation())
        return check_parents(record, old, primary);
      if (primary)
        *primary= !m_hidden && link->own_index == 0;
      return foreign_error(HA_ERR_NO_REFERENCED_ROW, m_name, link->key);
    }
  }
  m_awaited.end_row();
  return m_awaited.are_many() ? check_awaited() : 0;
}

/** Keys of parents that are asked for side by side. */
static const size_t TOGETHER= 64;

/** Looks for the parents of a bulk load's rows that were not looked for yet. If several rows have none, the first one's foreign key is named. */
int ha_terrace::check_awaited()
{
  std::string missed;
  ha_rows first= HA_POS_ERROR;
  std::vector<terrace_bytes> some;
  for (bool ended= m_awaited.empty(); !ended;)
  {
    ended= true;
    Foreign *foreign= this->foreign();
    for (size_t at= 0; foreign && at < foreign->parents.size(); at++)
    {
      Link *link= foreign->parents[at].get();
      if (int error= finish_loads_of(link->name))
        return error;
      if (int error= link->prepare(ha_thd(), table))
        return error;
      if (m_foreign_generation != relations_generation())
      {
        ended= false;                   // these links are gone
        break;
      }
      AwaitedParents::Keys keys= m_awaited.take(link->key.name);
      keys.sort();
      for (size_t begin= 0; begin < keys.all.size(); begin+= TOGETHER)
      {
        some.clear();
        const size_t end= std::min(begin + TOGETHER, keys.all.size());
        for (size_t key= begin; key < end; key++)
          some.push_back(keys.bytes_of(keys.all[key]));
        if (some.size() > 1)
          link->fetch_soon(*m_session, some);
        for (size_t key= begin; key < end; key++)
        {
          const int32_t code= link->find_encoded(*m_session, some[key - begin], false);
          if (code && code != TERRACE_NO_ROW)
            return map(code);
          if (code && keys.all[key].row < first)
            first= keys.all[key].row, missed= link->key.name;
        }
      }
    }
  }
  m_awaited.clear();
  if (missed.empty())
    return 0;
  for (const auto &link : foreign()->parents)
    if (link->key.name == missed)
      return foreign_error(HA_ERR_NO_REFERENCED_ROW, m_name, link->key);
  return HA_ERR_NO_REFERENCED_ROW;
}

/** Whether the row is no former row, which the table keeps as its history. */
bool ha_terrace::is_current(const uchar *record) const
{
  if (!table->versioned())
    return true;
  const Field *end= table->vers_end_field();
  return end->is_max(end->ptr_in_record(record));
}

/** Looks for a row of the other table with the key that was encoded last; see Link::find(). Handler error. */
int ha_terrace::look_up(Link *link, const Bytes &key, bool releases, bool *found)
{
  *found= false;
  if (!link->may_find())
    return 0;
  if (!link->has_history)
  {
    const int32_t code= link->find(*m_session, key, releases);
    *found= !code;
    return code && code != TERRACE_NO_ROW ? map(code) : 0;
  }
  // Entries don't tell which rows are former ones.
  THD *thd= ha_thd();
  Cascades &all= m_session->cascades;
  int error;
  TABLE *other= all.take(thd, link->name, &error);
  if (!other)
    return error ? error : HA_ERR_NO_SUCH_TABLE;
  ha_terrace *handler= static_cast<ha_terrace *>(other->file);
  handler->enter_cascade(m_session);
  error= handler->has_current(*link, key, found);
  all.give_back(other);
  return error;
}

bool ha_terrace::is_null_in(const Link &link, const uchar *record) const
{
  const my_ptrdiff_t moved= record - table->record[0];
  for (const std::string &column : link.own)
    for (Field **field= table->field; *field; field++)
      if (same_name((*field)->field_name.str, column) && (*field)->is_null(moved))
        return true;
  return false;
}

/**
  Whether the row that comes has the key that it refers to. The key is in m_foreign->bytes. As in InnoDB, which inserts index by index, that counts if the
  key's index comes before the foreign key's.
*/
bool ha_terrace::is_own_parent(const Link &link, const uchar *record)
{
  const uint index= index_over(table->key_info, table->s->keys, link.other);
  if (index == MAX_KEY || index >= link.own_index)
    return false;
  Bytes &own= m_foreign->own;
  own.clear();
  m_indexes[index].each_part((uint) link.other.size(), [&](const KeyPart &part, uint) {
    bool is_null;
    part.encode_record(record, &own, &is_null);
  });
  return own.equals(m_foreign->bytes.data(), m_foreign->bytes.size());
}

/**
  Whether the row that comes refers to a key which it has had itself and doesn't have any more. Its entry is still there, and is no parent. The key is in
  m_foreign->bytes.
*/
bool ha_terrace::leaves_own_key(const Link &link, const uchar *record, const uchar *old)
{
  const uint index= index_over(table->key_info, table->s->keys, link.other);
  if (index == MAX_KEY)
    return false;
  Bytes &own= m_foreign->own;
  const auto has_key= [&](const uchar *row) {
    own.clear();
    m_indexes[index].each_part((uint) link.other.size(), [&](const KeyPart &part, uint) {
      bool is_null;
      part.encode_record(row, &own, &is_null);
    });
    return own.equals(m_foreign->bytes.data(), m_foreign->bytes.size());
  };
  return has_key(old) && !has_key(record);
}

/** Looks for children of a row that goes, or whose key changes (`record` is the new row), and changes them if their foreign key says so. */
int ha_terrace::check_children(const uchar *old, const uchar *record)
{
  THD *thd= ha_thd();
  Foreign *foreign= this->foreign();
  if (!foreign || foreign->children.empty() || thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS) || !is_current(old))
    return 0;
  // A row that becomes history goes.
  if (record && !is_current(record))
    record= nullptr;
  bool is_locked= false;
  StepGuard step(m_session->cascades);
  for (size_t at= 0; at < foreign->children.size(); at++)
  {
    Link *link= foreign->children[at].get();
    if (link->resolve_own(table) && record && link->is_same(old, record))
      continue;
    if (is_null_in(*link, old))
      continue;
    if (!is_locked)
    {
      // The statement has it already, as a rule.
      encode_primary(old, &m_primary_bytes);
      const int32_t code= terrace_row_lock(m_session->transaction(), m_table, bytes_of(m_primary_bytes.data(), m_primary_bytes.size()), TERRACE_LOCK_EXCLUSIVE);
      if (code && code != TERRACE_NO_ROW)
        return map(code);
      is_locked= true;
      step.begin(m_name, m_primary_bytes, record);
    }
    step.at(link->own_index);
    if (int error= link->prepare(thd, table))
      return error;
    if (m_foreign_generation != relations_generation())
    {
      step.end();
      return check_children(old, record);
    }
    bool found= true;                   // without its index nothing is known of the child
    if (link->usable && link->encode(old, &foreign->bytes))
    {
      if (!link->may_find())
        continue;
      if (!m_session->loads.empty())
        if (int error= finish_loads_of(link->name))
          return error;
      if (ForeignKey::modifies(record ? link->key.on_update : link->key.on_delete))
      {
        if (int error= cascade(*link, old, record))
          return error;
        continue;
      }
      if (int error= look_up(link, foreign->bytes, false, &found))
        return error;
    }
    if (found)
      return foreign_error(HA_ERR_ROW_IS_REFERENCED, link->name, link->key);
  }
  return 0;
}

static LEX_CSTRING *lex_string(THD *thd, const std::string &text) { return thd->make_clex_string(text.data(), text.size()); }

/** Whether the statement may copy the table: then the server compares its columns with those of its foreign keys. */
static bool may_copy(THD *thd)
{
  const int command= command_of(thd);
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX || command == SQLCOM_OPTIMIZE;
}

/** Tells the server which columns of the foreign key's indexes may be NULL. Returns false, with an error raised, if a table's metadata can't be locked. */
static bool tell_nullable(THD *thd, const TABLE *table, const std::string &name, const std::string &child, const ForeignKey &key, FOREIGN_KEY_INFO *info)
{
  for (const bool referenced : {false, true})
  {
    const std::string of= referenced ? key.parent() : child;
    std::unique_ptr<Definition> other(of == name ? nullptr : new Definition(thd, of));
    if (other && other->error)
      return false;
    const TABLE_SHARE *share= other ? other->share : table->s;
    if (!share)
      continue;
    const KEY *keys= other ? share->key_info : table->key_info;
    const uint index= index_over(keys, share->keys, referenced ? key.parent_columns : key.columns);
    for (uint part= 0; index != MAX_KEY && part < key.columns.size(); part++)
      if (keys[index].key_part[part].field->real_maybe_null())
        info->set_nullable(thd, referenced, part, (unsigned) key.columns.size());
  }
  return true;
}

/** Whether the engine has a table of this name. */
static bool is_there(const std::string &name)
{
  Properties properties;
  return !properties_of(name, &properties);
}

static FOREIGN_KEY_INFO *info_of(THD *thd, const std::string &child, const ForeignKey &key)
{
  void *room= thd->alloc(sizeof(FOREIGN_KEY_INFO));
  if (!room)
    return nullptr;
  FOREIGN_KEY_INFO *info= new (room) FOREIGN_KEY_INFO();
  const TableName name(child);
  info->foreign_id= lex_string(thd, key.name);
  info->foreign_db= lex_string(thd, name.database);
  info->foreign_table= lex_string(thd, name.table);
  info->referenced_db= lex_string(thd, key.parent_database);
  info->referenced_table= lex_string(thd, key.parent_table);
  info->referenced_key_name= key.parent_index.empty() || !is_there(key.parent()) ? nullptr : lex_string(thd, key.parent_index);
  info->delete_method= (enum_fk_option) key.on_delete;
  info->update_method= (enum_fk_option) key.on_update;
  for (const std::string &column : key.columns)
    info->foreign_fields.push_back(lex_string(thd, column), thd->mem_root);
  for (const std::string &column : key.parent_columns)
    info->referenced_fields.push_back(lex_string(thd, column), thd->mem_root);
  return thd->is_error() ? nullptr : info;
}

int ha_terrace::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys)
{
  const Foreign *foreign= this->foreign();
  if (foreign)
    for (const ForeignKey &key : foreign->relations->own)
    {
      FOREIGN_KEY_INFO *info= info_of(thd, m_name, key);
      if (info && may_copy(thd) && !tell_nullable(thd, table, m_name, m_name, key, info))
        return HA_ERR_LOCK_WAIT_TIMEOUT;
      if (!info || keys->push_back(info, thd->mem_root))
        return HA_ERR_OUT_OF_MEM;
    }
  // An application that declared foreign keys, which were left out with a warning, drops them in an upgrade: the server must find them.
  for (const std::string &name : absent_keys_dropped(thd, table, foreign ? foreign->relations.get() : nullptr))
  {
    void *room= thd->alloc(sizeof(FOREIGN_KEY_INFO));
    FOREIGN_KEY_INFO *info= room ? new (room) FOREIGN_KEY_INFO() : nullptr;
    if (!info || !(info->foreign_id= lex_string(thd, name)) || keys->push_back(info, thd->mem_root))
      return HA_ERR_OUT_OF_MEM;
  }
  return 0;
}

int ha_terrace::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys)
{
  if (const Foreign *foreign= this->foreign())
    for (const Relations::Child &child : foreign->relations->children)
    {
      FOREIGN_KEY_INFO *info= info_of(thd, child.table, child.key);
      if (info && may_copy(thd) && !tell_nullable(thd, table, m_name, child.table, child.key, info))
        return HA_ERR_LOCK_WAIT_TIMEOUT;
      if (!info || keys->push_back(info, thd->mem_root))
        return HA_ERR_OUT_OF_MEM;
    }
  return 0;
}

bool ha_terrace::referenced_by_foreign_key() const noexcept
{
  const Foreign *foreign= this->foreign();
  return foreign && !foreign->relations->children.empty();
}

bool ha_terrace::can_switch_engines() { return !foreign(); }

char *ha_terrace::get_foreign_key_create_info()
{
  const Foreign *foreign= this->foreign();
  if (!foreign || foreign->relations->own.empty())
    return nullptr;
  std::string text;
  for (const ForeignKey &key : foreign->relations->own)
    text+= ",\n  " + key.text(ha_thd(), TableName(m_name).database);
  return strdup(text.c_str());
}

void ha_terrace::free_foreign_key_create_info(char *text) { free(text); }
