/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Reads in index order across key parts that are cut (key_codec.h).

  Entries that are equal in all bytes before a cut form a *run*. The tree keeps the entries of a run in the order of their digests. The entries
  of a run that also have the same digest form a *unit*: they have the same value, and the bytes after the digest order them as usual. So a
  scan that reaches a run reads one row of each unit for its value, sorts the units by value, and scans them one after the other, each by the
  prefix that its entries share. After the last unit it continues after the run. A later part may be cut within a unit: that makes a run within
  the unit, and so on.

  A read of equal values knows its unit by the digest. It finds the run's other units only if the scan continues past the end of its unit, which
  happens only if the reader gave no end. The same holds for a range whose two ends have the same value.

  A locking read locks all that it reads, including gaps: it locks rows of all units of a run, even if its range ends within the run. Entries
  after the range in index order may be before it in tree order. READ COMMITTED releases the locks of these rows.
*/
#include "ha_terrace.h"
#include "errors.h"
#include <algorithm>

using namespace terrace;

/** The most bytes that a run's units may take. */
static const size_t RUN_BYTES_MAX= 256 << 20;

static std::string text(const Bytes &bytes, size_t from= 0)
{
  return std::string(reinterpret_cast<const char *>(bytes.data()) + from, bytes.size() - from);
}

/** Whether the statement is a SELECT of a single table that returns all rows, in any order. */
bool ha_terrace::needs_no_order() const
{
  LEX *lex= ha_thd()->lex;
  SELECT_LEX *select= lex->first_select_lex();
  const TABLE_LIST *from= select->table_list.first;
  return lex->sql_command == SQLCOM_SELECT && !ha_thd()->in_sub_stmt && from && !from->next_local && lex->all_selects_list == select &&
         !select->next_select_in_list() && !select->order_list.elements && !select->group_list.elements && !select->with_sum_func &&
         !(select->options & SELECT_DISTINCT) && !select->have_window_funcs() && !lex->with_rownum;
}

/** Whether the batch shows that the next entry differs from the current one in its first `bytes` bytes. */
bool ha_terrace::is_alone(size_t bytes) const
{
  if (!m_batch_left)
    return m_batch.ended;
  const terrace_bytes &next= m_batch.first[m_batch_at].key;
  return next.len < bytes || memcmp(next.data, m_current.key, bytes);
}

/** Reads one complete row of the run into `buf`: the first at or after `from`. */
int ha_terrace::look_at_cut(uchar *buf, const Bytes &from, const Bytes &run)
{
  m_looks= true;
  int error= fetch(TERRACE_SEEK_AT_LEAST, &from, &run, 1);
  m_looks= false;
  m_at_cursor= false;
  if (error)
    return error;
  if (!m_row.decode(m_current.value, m_current.value_length, buf, nullptr, false, m_current.holes))
    return HA_ERR_CRASHED;
  if (!m_indexes[active_index].has_virtual())
    return 0;
  const uint index= keyread;
  MY_BITMAP *const columns= table->read_set;
  const bool apart= buf != table->record[0];
  keyread= MAX_KEY;
  table->read_set= &table->s->all_set;
  if (apart)
    table->move_fields(table->field, buf, table->record[0]);
  const bool failed= table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
  if (apart)
    table->move_fields(table->field, table->record[0], buf);
  table->read_set= columns;
  keyread= index;
  return failed ? HA_ERR_CRASHED : 0;
}

/** Finds the run's units. There may be none left. */
int ha_terrace::gather_cut_run(uchar *buf, CutRun *run)
{
  if (m_cut_kept && m_lock == TERRACE_LOCK_NONE && m_cut_kept->begins == run->begins && m_cut_kept->part == run->part)
  {
    run->units= m_cut_kept->units;
    return 0;
  }
  const KeyCodec &index= m_indexes[active_index];
  const size_t before= run->begins.size();
  Bytes from, all, value;
  all.assign(run->begins.data(), before);
  from.assign(run->begins.data(), before);
  std::vector<CutRun::Unit> units;
  size_t bytes= 0;
  int error;
  while (!(error= look_at_cut(buf, from, all)))
  {
    KeyCodec::CutPart here;
    // Every entry that equals the run's bytes before the cut is cut at the same place.
    if (!index.find_cut(m_current.key, m_current.key_length, before, &here) || here.part != run->part)
      return HA_ERR_CRASHED;
    value.clear();
    index.encode_part_in_full(buf, here.part, &value);
    units.push_back({std::string(reinterpret_cast<const char *>(m_current.key) + before, KeyPart::DIGEST), text(value, index.bytes_before_cut(here.part))});
    from.assign(m_current.key, here.end);
    unlock_row();
    bytes+= units.back().value.size() + sizeof(CutRun::Unit) + KeyPart::DIGEST;
    if (bytes > RUN_BYTES_MAX)
      return HA_ERR_OUT_OF_MEM;
    if (!successor(&from))
    {
      error= HA_ERR_END_OF_FILE;
      break;
    }
  }
  if (error != HA_ERR_END_OF_FILE)
    return error;
  std::sort(units.begin(), units.end());
  run->units= std::make_shared<const std::vector<CutRun::Unit>>(std::move(units));
  if (m_lock == TERRACE_LOCK_NONE && m_cut_runs.size() <= 1)
    m_cut_kept.reset(new CutRun(*run));
  return 0;
}

/** Confines the scan to the innermost run's current unit. */
void ha_terrace::stay_in_cut_unit()
{
  if (m_cut_runs.empty())
    return;
  const CutRun &run= *m_cut_runs.back();
  m_cut_unit.assign(run.begins.data(), run.begins.size());
  m_cut_unit.append(run.now.digest.data(), run.now.digest.size());
}

/** Enters the units in the first `covered` bytes of m_prefix, the read's bound. */
void ha_terrace::enter_units_of_bound(size_t covered)
{
  const KeyCodec &index= m_indexes[active_index];
  KeyCodec::CutPart cut;
  for (size_t so_far= 0; index.find_cut(m_prefix.data(), m_prefix.size(), so_far, &cut) && cut.end <= covered; so_far= cut.end)
    m_cut_runs.push_back(run_of_bound(cut));
  stay_in_cut_unit();
}

/** The run at a cut of the bound, with the bound's unit as the current one. */
std::unique_ptr<ha_terrace::CutRun> ha_terrace::run_of_bound(const KeyCodec::CutPart &cut)
{
  const KeyCodec &index= m_indexes[active_index];
  Bytes value, before;
  index.encode_image_in_full(m_cut_image.data(), m_cut_parts, cut.part, &value);
  if (cut.part)
    index.encode_image_in_full(m_cut_image.data(), m_cut_parts, cut.part - 1, &before);
  std::unique_ptr<CutRun> run(new CutRun);
  run->begins.assign(reinterpret_cast<const char *>(m_prefix.data()), cut.before);
  run->part= cut.part;
  run->now= {std::string(reinterpret_cast<const char *>(m_prefix.data()) + cut.before, KeyPart::DIGEST),
             text(value, before.size() + index.bytes_before_cut(cut.part))};
  return run;
}

/** Reads the first row of the innermost run's unit `at`, in the scan's direction. */
int ha_terrace::read_cut_unit(uchar *buf, size_t at)
{
  CutRun &run= *m_cut_runs.back();
  run.now= (*run.units)[at];
  stay_in_cut_unit();
  if (m_direction == FORWARD)
    return go(buf, TERRACE_SEEK_AT_LEAST, &m_cut_unit, &m_cut_unit);
  Bytes behind;
  behind.assign(m_cut_unit.data(), m_cut_unit.size());
  return successor(&behind) ? go(buf, TERRACE_SEEK_BEFORE, &behind, &m_cut_unit) : go(buf, TERRACE_SEEK_LAST, nullptr, &m_cut_unit);
}

/** Reads the row next to the innermost run, whose units have all been scanned. */
int ha_terrace::leave_cut_run(uchar *buf, const Bytes *prefix)
{
  Bytes bound;
  const std::string &begins= m_cut_runs.back()->begins;
  bound.assign(begins.data(), begins.size());
  m_cut_runs.pop_back();
  stay_in_cut_unit();
  if (m_direction == BACKWARD)
    return go(buf, TERRACE_SEEK_BEFORE, &bound, within(prefix));
  return successor(&bound) ? go(buf, TERRACE_SEEK_AT_LEAST, &bound, within(prefix)) : HA_ERR_END_OF_FILE;
}

/** After the innermost run's current unit: reads the first row of the next unit or, if it was the last, the row after the run. */
int ha_terrace::read_next_cut_unit(uchar *buf, const Bytes *prefix)
{
  CutRun &run= *m_cut_runs.back();
  m_steps++;
  if (!run.units)
    if (int error= gather_cut_run(buf, &run))
      return error;
  const std::vector<CutRun::Unit> &units= *run.units;
  const auto next= m_direction == FORWARD ? std::upper_bound(units.begin(), units.end(), run.now) : std::lower_bound(units.begin(), units.end(), run.now);
  const size_t at= (size_t) (next - units.begin());
  if (m_direction == FORWARD ? at == units.size() : at == 0)
    return leave_cut_run(buf, prefix);
  return read_cut_unit(buf, m_direction == FORWARD ? at : at - 1);
}

/** After a step in tree order, which ended with `error`: reads the row that is next in index order. */
int ha_terrace::put_in_order(uchar *buf, int error, Direction direction, const Bytes *prefix)
{
  for (;;)
  {
    m_direction= direction;             // a reopened cursor has no direction
    if (!error)
    {
      const Bytes *const all= within(prefix);
      KeyCodec::CutPart cut;
      if (!m_indexes[active_index].find_cut(m_current.key, m_current.key_length, all ? all->size() : 0, &cut) || is_alone(cut.before))
        return 0;
      std::unique_ptr<CutRun> run(new CutRun);
      run->begins.assign(reinterpret_cast<const char *>(m_current.key), cut.before);
      run->part= cut.part;
      if ((error= gather_cut_run(buf, run.get())))
        return error;
      m_direction= direction;
      m_cut_runs.push_back(std::move(run));
      const size_t units= m_cut_runs.back()->units->size();
      error= !units ? leave_cut_run(buf, prefix) : read_cut_unit(buf, direction == FORWARD ? 0 : units - 1);
      continue;
    }
    // If all wanted entries have the unit's value, the read ends with the unit.
    if ((error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND) || m_cut_runs.empty() ||
        (prefix && prefix->size() >= m_cut_unit.size()) || m_cut_unit.size() <= m_cut_confined)
      return error;
    error= read_next_cut_unit(buf, prefix);
  }
}

/** index_read_map() with a bound that has a cut part; m_prefix holds the bound as encoded in keys. */
int ha_terrace::seek_cut_bound(uchar *buf, enum ha_rkey_function flag)
{
  const Direction direction= flag == HA_READ_KEY_OR_NEXT || flag == HA_READ_AFTER_KEY ? FORWARD : BACKWARD;
  begin_seek(direction);
  enter_units_of_bound(m_cut_confined);
  return put_in_order(buf, go_to_cut_bound(buf, flag, m_cut_confined), direction, nullptr);
}

/** Enters the units of the bound as long as each of its runs has that unit. The scan has entered those of the first `covered` bytes. */
int ha_terrace::go_to_cut_bound(uchar *buf, enum ha_rkey_function flag, size_t covered)
{
  const KeyCodec &index= m_indexes[active_index];
  const Direction direction= m_direction;
  KeyCodec::CutPart cut;
  if (!index.find_cut(m_prefix.data(), m_prefix.size(), covered, &cut))
  {
    // After the last cut, tree order is index order.
    Bytes bound;
    bound.assign(m_prefix.data(), m_prefix.size());
    const bool behind= flag != HA_READ_KEY_OR_NEXT && flag != HA_READ_BEFORE_KEY;
    if (behind && !successor(&bound))
      return direction == FORWARD ? HA_ERR_END_OF_FILE : go(buf, TERRACE_SEEK_LAST, nullptr, within(nullptr));
    return go(buf, direction == FORWARD ? TERRACE_SEEK_AT_LEAST : TERRACE_SEEK_BEFORE, &bound, within(nullptr));
  }
  std::unique_ptr<CutRun> run= run_of_bound(cut);
  if (int error= gather_cut_run(buf, run.get()))
    return error;
  m_direction= direction;
  const std::vector<CutRun::Unit> &units= *run->units;
  const bool is_there= std::binary_search(units.begin(), units.end(), run->now);
  m_cut_runs.push_back(std::move(run));
  stay_in_cut_unit();
  // Without the bound's unit, the wanted entries begin with the unit next to its position.
  return is_there ? go_to_cut_bound(buf, flag, cut.end) : read_next_cut_unit(buf, nullptr);
}

/** Called when the cursor is closed for a while: the contents of its runs may change meanwhile. */
void ha_terrace::forget_cut_units()
{
  m_cut_kept.reset();
  for (const std::unique_ptr<CutRun> &run : m_cut_runs)
    run->units.reset();
}
