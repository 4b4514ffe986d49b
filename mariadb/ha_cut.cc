/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Reads in an index's order past parts that are cut (key_codec.h).

  Entries that agree in all bytes before a cut are a *run*. In it the engine has them in the digests' order; in a *unit*, those that agree in the
  digest too, the value is the same, and what follows it orders them as ever. So a scan that comes to a run looks at one row of each unit for
  the value, sorts the units by it, and goes through them one after the other, each with the unit's bytes as what all its entries begin with.
  Behind the last it goes on behind the run. In a unit a later part may be cut: that is a run within the unit, and so on.

  A read that finds equal values by a cut part needs none of this: it has the digest.

  A locking read locks what it looks at: of each unit of a run the first row, though its range may end in it.
*/
#include "ha_terrace.h"
#include <algorithm>

using namespace terrace;

/** Bytes that a run's units may take. */
static const size_t RUN_BYTES_MAX= 64 << 20;

/** Whether no other entry next to the current one, in the scan's direction, agrees with it in so many bytes. */
bool ha_terrace::is_alone(size_t bytes) const
{
  if (!m_batch_left)
    return m_batch.ended;
  const terrace_bytes &next= m_batch.first[m_batch_at].key;
  return next.len < bytes || memcmp(next.data, m_current.key, bytes);
}

/** One row of the run, whole, to `buf`: the first at `from` or behind it. */
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

/** The run that begins with the key's bytes before the cut becomes the innermost one, with its units. It may have none any more. */
int ha_terrace::gather_cut_run(uchar *buf, const uchar *key, const KeyCodec::CutPart &cut)
{
  const KeyCodec &index= m_indexes[active_index];
  std::unique_ptr<CutRun> run(new CutRun);
  run->begins.assign(reinterpret_cast<const char *>(key), cut.before);
  Bytes from, all, value;
  all.assign(key, cut.before);
  from.assign(key, cut.before);
  size_t bytes= 0;
  int error;
  while (!(error= look_at_cut(buf, from, all)))
  {
    KeyCodec::CutPart here;
    // Whoever agrees with it before the cut is cut there.
    if (!index.find_cut(m_current.key, m_current.key_length, cut.before, &here) || here.part != cut.part)
      return HA_ERR_CRASHED;
    value.clear();
    index.encode_in_full(buf, here.part, &value);
    run->units.push_back({std::string(reinterpret_cast<const char *>(m_current.key), here.end),
                          std::string(reinterpret_cast<const char *>(value.data()), value.size())});
    bytes+= here.end + value.size() + sizeof(CutRun::Unit);
    if (bytes > RUN_BYTES_MAX)
      return HA_ERR_OUT_OF_MEM;
    from.assign(m_current.key, here.end);
    if (!successor(&from))
    {
      error= HA_ERR_END_OF_FILE;
      break;
    }
  }
  if (error != HA_ERR_END_OF_FILE)
    return error;
  std::sort(run->units.begin(), run->units.end());
  m_cut_runs.push_back(std::move(run));
  return 0;
}

/** The first row of the innermost run's current unit, in the scan's direction. */
int ha_terrace::read_cut_unit(uchar *buf)
{
  const CutRun &run= *m_cut_runs.back();
  const std::string &begins= run.units[run.at].begins;
  m_cut_unit.assign(begins.data(), begins.size());
  if (m_direction == FORWARD)
    return go(buf, TERRACE_SEEK_AT_LEAST, &m_cut_unit, &m_cut_unit);
  Bytes behind;
  behind.assign(begins.data(), begins.size());
  return successor(&behind) ? go(buf, TERRACE_SEEK_BEFORE, &behind, &m_cut_unit) : go(buf, TERRACE_SEEK_LAST, nullptr, &m_cut_unit);
}

/** The row next to the innermost run, which the scan is through. */
int ha_terrace::leave_cut_run(uchar *buf, const Bytes *prefix)
{
  Bytes bound;
  const std::string &begins= m_cut_runs.back()->begins;
  bound.assign(begins.data(), begins.size());
  m_cut_runs.pop_back();
  if (!m_cut_runs.empty())
  {
    const CutRun &outer= *m_cut_runs.back();
    m_cut_unit.assign(outer.units[outer.at].begins.data(), outer.units[outer.at].begins.size());
  }
  if (m_direction == BACKWARD)
    return go(buf, TERRACE_SEEK_BEFORE, &bound, within(prefix));
  return successor(&bound) ? go(buf, TERRACE_SEEK_AT_LEAST, &bound, within(prefix)) : HA_ERR_END_OF_FILE;
}

/** After a step within the engine's order, which ended with `error`: the row that is next in the index's. */
int ha_terrace::put_in_order(uchar *buf, int error, const Bytes *prefix)
{
  for (;;)
  {
    if (!error)
    {
      const Bytes *const all= within(prefix);
      KeyCodec::CutPart cut;
      if (!m_indexes[active_index].find_cut(m_current.key, m_current.key_length, all ? all->size() : 0, &cut) || is_alone(cut.before))
        return 0;
      m_key.assign(m_current.key, m_current.key_length);
      if ((error= gather_cut_run(buf, m_key.data(), cut)))
        return error;
      CutRun &run= *m_cut_runs.back();
      run.at= m_direction == FORWARD || run.units.empty() ? 0 : run.units.size() - 1;
      error= run.units.empty() ? leave_cut_run(buf, prefix) : read_cut_unit(buf);
      continue;
    }
    if ((error != HA_ERR_END_OF_FILE && error != HA_ERR_KEY_NOT_FOUND) || m_cut_runs.empty())
      return error;
    CutRun &run= *m_cut_runs.back();
    const bool last= m_direction == FORWARD ? run.at + 1 >= run.units.size() : run.at == 0;
    if (!last)
      run.at+= m_direction == FORWARD ? 1 : -1;
    error= last ? leave_cut_run(buf, prefix) : read_cut_unit(buf);
  }
}

/** index_read_map() of a bound of which a part is cut; the bytes of it as they are in keys are in m_prefix. */
int ha_terrace::seek_cut_bound(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function flag)
{
  begin_seek(flag == HA_READ_KEY_OR_NEXT || flag == HA_READ_AFTER_KEY ? FORWARD : BACKWARD);
  return put_in_order(buf, go_to_cut_bound(buf, key, parts, flag, 0), nullptr);
}

/** As far as the bound agrees with a unit of each run; `covered` bytes of it do. */
int ha_terrace::go_to_cut_bound(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function flag, size_t covered)
{
  const KeyCodec &index= m_indexes[active_index];
  const bool forward= m_direction == FORWARD;
  KeyCodec::CutPart cut;
  if (!index.find_cut(m_prefix.data(), m_prefix.size(), covered, &cut))
  {
    // What is behind it is in the engine's order.
    Bytes bound;
    bound.assign(m_prefix.data(), m_prefix.size());
    const bool behind= flag != HA_READ_KEY_OR_NEXT && flag != HA_READ_BEFORE_KEY;
    if (behind && !successor(&bound))
      return forward ? HA_ERR_END_OF_FILE : go(buf, TERRACE_SEEK_LAST, nullptr, within(nullptr));
    return go(buf, forward ? TERRACE_SEEK_AT_LEAST : TERRACE_SEEK_BEFORE, &bound, within(nullptr));
  }
  if (int error= gather_cut_run(buf, m_prefix.data(), cut))
    return error;
  CutRun &run= *m_cut_runs.back();
  Bytes value;
  index.encode_image_in_full(key, parts, cut.part, &value);
  CutRun::Unit bound;
  bound.value.assign(reinterpret_cast<const char *>(value.data()), value.size());
  const auto found= std::lower_bound(run.units.begin(), run.units.end(), bound);
  const size_t at= (size_t) (found - run.units.begin());
  if (found != run.units.end() && found->value == bound.value)
  {
    run.at= at;
    m_cut_unit.assign(found->begins.data(), found->begins.size());
    return go_to_cut_bound(buf, key, parts, flag, cut.end);
  }
  // The unit is another one, of which all is wanted; or there is none on this side, and the scan is through with the run.
  const bool none= forward ? found == run.units.end() : at == 0;
  if (run.units.empty())
    return leave_cut_run(buf, nullptr);
  run.at= none ? (forward ? at - 1 : 0) : forward ? at : at - 1;
  return none ? HA_ERR_END_OF_FILE : read_cut_unit(buf);
}
