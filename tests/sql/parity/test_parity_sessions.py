"""Two sessions step by step, on InnoDB and on the engine: which session waits, which goes on, and with what result."""

import time

import pymysql
import pytest
from patient import Patient

SETUP = [
    "DROP TABLE IF EXISTS t",
    "CREATE TABLE t (id INT PRIMARY KEY, v INT, u INT, KEY (v), UNIQUE (u)) ENGINE=@E",
    "INSERT INTO t VALUES (1,10,100),(2,20,200),(3,30,300),(4,40,400),(5,50,500)",
]

# A step: who and what; "b?" waits for b's answer, "kill b" and "drop a" come from outside.
SCENARIOS = {
    'wait and commit': [
        ('a', 'begin'),
        ('a', 'update t set v=11 where id=1'),
        ('b', 'update t set v=12 where id=1'),
        ('a', 'commit'),
        ('b?',),
        ('b', 'select v from t where id=1'),
    ],
    'readers do not wait': [
        ('a', 'begin'),
        ('a', 'update t set v=11 where id=1'),
        ('b', 'select * from t'),
        ('a', 'rollback'),
        ('b', 'select * from t'),
    ],
    'repeatable read': [
        ('a', 'begin'),
        ('a', 'select * from t'),
        ('b', 'update t set v=99 where id=2'),
        ('b', 'insert into t values(9,90,900)'),
        ('b', 'delete from t where id=3'),
        ('a', 'select * from t'),
        ('a', 'select v from t order by v'),
        ('a', 'select count(*) from t where v>0'),
        ('a', 'select * from t where id=2 for update'),
        ('a', 'commit'),
        ('a', 'select * from t'),
    ],
    'read committed': [
        ('a', 'set transaction isolation level read committed'),
        ('a', 'begin'),
        ('a', 'select * from t'),
        ('b', 'update t set v=99 where id=2'),
        ('a', 'select * from t'),
        ('a', 'commit'),
    ],
    'read uncommitted': [
        ('a', 'set session transaction isolation level read uncommitted'),
        ('b', 'begin'),
        ('b', 'update t set v=99 where id=2'),
        ('a', 'select v from t where id=2'),
        ('b', 'rollback'),
        ('a', 'select v from t where id=2'),
    ],
    'serializable': [
        ('a', 'set session transaction isolation level serializable'),
        ('a', 'begin'),
        ('a', 'select v from t where id=2'),
        ('b', 'set terrace_lock_wait_timeout_ms=1000'),
        ('b', 'set innodb_lock_wait_timeout=1'),
        ('b', 'update t set v=1 where id=2'),
        ('b?',),
        ('a', 'commit'),
        ('b', 'update t set v=1 where id=2'),
    ],
    'a handler locks nothing, serializable or not': [
        ('a', 'set session transaction isolation level serializable'),
        ('a', 'begin'),
        ('a', 'handler t open'),
        ('a', 'handler t read first'),
        ('b', 'update t set v=11 where id=1'),
        ('a', 'handler t read `primary` = (1)'),
        ('a', 'handler t close'),
        ('a', 'commit'),
        ('b?',),
    ],
    'deadlock': [
        ('a', 'begin'),
        ('b', 'begin'),
        ('a', 'update t set v=0 where id=1'),
        ('b', 'update t set v=0 where id=2'),
        ('a', 'update t set v=0 where id=2'),
        ('b', 'update t set v=0 where id=1'),
        ('a?',),
        ('b?',),
        ('a', 'rollback'),
        ('b', 'rollback'),
        ('a', 'select * from t'),
    ],
    'lock timeout': [
        ('b', 'set terrace_lock_wait_timeout_ms=1000'),
        ('b', 'set innodb_lock_wait_timeout=1'),
        ('a', 'begin'),
        ('a', 'select * from t where id=1 for update'),
        ('b', 'begin'),
        ('b', 'update t set v=77 where id=2'),
        ('b', 'update t set v=1 where id=1'),
        ('b?',),
        ('b', 'select v from t where id=2'),
        ('b', 'commit'),
        ('a', 'commit'),
        ('a', 'select v from t where id in (1,2)'),
    ],
    'nowait': [
        ('a', 'begin'),
        ('a', 'select * from t where id=1 for update'),
        ('b', 'select * from t where id=1 for update nowait'),
        ('b', 'select * from t where id=2 for update nowait'),
        ('a', 'commit'),
    ],
    'other rows free': [
        ('a', 'begin'),
        ('a', 'select * from t where id=2 for update'),
        ('b', 'update t set v=5 where id=1'),
        ('b', 'update t set v=5 where id=3'),
        ('b', 'insert into t values(7,7,7)'),
        ('a', 'commit'),
    ],
    'equal rows only': [
        ('a', 'begin'),
        ('a', 'select * from t where v=20 for update'),
        ('b', 'update t set u=u+1 where id=3'),
        ('b?',),
        ('b', 'select * from t where v=30 for update'),
        ('b?',),
        ('a', 'commit'),
    ],
    'shared locks': [
        ('a', 'begin'),
        ('b', 'begin'),
        ('a', 'select v from t where id=1 lock in share mode'),
        ('b', 'select v from t where id=1 lock in share mode'),
        ('a', 'update t set v=1 where id=1'),
        ('b', 'commit'),
        ('a?',),
        ('a', 'commit'),
    ],
    'insert ignore of existing rows, in opposite order': [
        ('a', 'begin'),
        ('b', 'begin'),
        ('a', 'insert ignore into t values(1,0,0)'),
        ('b', 'insert ignore into t values(2,0,0)'),
        ('a', 'insert ignore into t values(2,0,0)'),
        ('b', 'insert ignore into t values(1,0,0)'),
        ('a?',),
        ('b?',),
        ('a', 'rollback'),
        ('b', 'rollback'),
    ],
    'insert ignore of existing unique values, in opposite order': [
        ('a', 'begin'),
        ('b', 'begin'),
        ('a', 'insert ignore into t values(61,0,100)'),
        ('b', 'insert ignore into t values(62,0,200)'),
        ('a', 'insert ignore into t values(62,0,200)'),
        ('b', 'insert ignore into t values(61,0,100)'),
        ('a?',),
        ('b?',),
        ('a', 'rollback'),
        ('b', 'rollback'),
    ],
    **{f'a row met as a duplicate by its {index} is locked, shared, {level}': [
        ('a', f'set session transaction isolation level {level}'),
        ('b', f'set session transaction isolation level {level}'),
        ('a', 'begin'),
        ('a', f'insert into t values({row})'),
        ('b', 'begin'),
        ('b', f'insert ignore into t values({row})'),
        ('b', f'insert into t values({row})'),
        ('b', f'select u from t where {where} lock in share mode'),
        ('a', f'insert ignore into t values({row})'),
        ('b', 'commit'),
        ('b', change),
        ('a', 'commit'),
        ('b?',),
        ('a', 'select * from t'),
    ] for level in ('repeatable read', 'read committed') for index, row, where, change in (
        ('key', '1,0,0', 'id=1', 'update t set v=1 where id=1'),
        ('key, that another replaces', '1,0,0', 'id=1', 'insert into t values(1,0,0) on duplicate key update v=1'),
        ('unique value', '61,0,100', 'u=100', 'delete from t where id=1'),
        ('unique value, that another replaces', '61,0,100', 'u=100', 'replace into t values(61,0,100)'))},
    'a row met as a duplicate by its unique value is locked there alone': [
        ('a', 'begin'),
        ('a', 'insert into t values(61,0,100)'),
        ('b', 'update t set v=1 where id=1'),
        ('b', 'update t set u=101 where id=1'),
        ('a', 'commit'),
        ('b?',),
    ],
    **{f'a duplicate of a row that another has locked, {what}': [
        ('a', 'begin'),
        ('a', f'select * from t where {where} {lock}'),
        ('b', f'insert into t values({row})'),
        ('b', f'insert ignore into t values({row})'),
        ('b', f'replace into t values({row})'),
        ('a', 'commit'),
        ('b?',),
        ('a', 'select * from t'),
    ] for what, where, row, lock in (
        ('shared', 'id=1', '1,0,0', 'lock in share mode'), ('shared, by a unique value', 'u=100', '61,0,100', 'lock in share mode'),
        ('for update', 'id=1', '1,0,0', 'for update'), ('for update, by a unique value', 'u=100', '61,0,100', 'for update'))},
    'insert ignore of new rows, in opposite order': [
        ('a', 'begin'),
        ('b', 'begin'),
        ('a', 'insert ignore into t values(11,0,11)'),
        ('a', 'update t set v=1 where id=3'),
        ('b', 'insert ignore into t values(12,0,12)'),
        ('a', 'insert ignore into t values(12,0,12)'),
        ('b', 'insert ignore into t values(11,0,11)'),
        ('b?',),
        ('a?',),
        ('a', 'rollback'),
        ('b', 'rollback'),
    ],
    'insert ignore of many rows, in opposite order': [
        ('a', 'begin'),
        ('a', 'insert ignore into t values(11,0,11),(12,0,12),(13,0,13)'),
        ('b', 'insert ignore into t values(13,0,13),(12,0,12),(11,0,11)'),
        ('a', 'commit'),
        ('b?',),
        ('b', 'select count(*) from t'),
    ],
    'what is prepared keeps all locks where it is serializable': [
        ('a', 'set session transaction isolation level serializable'),
        ('a', "xa start 'serial'"),
        ('a', 'update t set v=0 where id=2'),
        ('a', 'select v from t where id=1'),
        ('a', "xa end 'serial'"),
        ('a', "xa prepare 'serial'"),
        ('b', 'update t set v=7 where id=1'),
        ('a', "xa rollback 'serial'"),
        ('b?',),
    ],
    **{f'what is prepared gives back what it has locked to read again, {level}': [
        ('a', f'set session transaction isolation level {level}'),
        ('a', "xa start 'gives'"),
        ('a', 'update t set v=0 where id=2'),
        ('a', 'select v from t where id=1 lock in share mode'),
        ('a', 'select id from t where v=30 lock in share mode'),
        ('a', 'select id from t where id=4 for update'),
        ('a', 'select id from t where id=7 for update'),
        ('a', "xa end 'gives'"),
        ('a', "xa prepare 'gives'"),
        ('b', 'update t set v=7 where id=1'),
        ('b', 'update t set u=333 where id=3'),
        ('b', 'insert into t values(7,70,700)'),
        ('b', 'select id from t where id=4 lock in share mode nowait'),
        ('b', 'select id from t where id=2 for update nowait'),
        ('b', 'update t set v=v+1 where id=2'),
        ('a', "xa rollback 'gives'"),
        ('b?',),
        ('b', 'select * from t'),
    ] for level in ('read committed', 'repeatable read')},
    'what is prepared and has changed nothing keeps its locks': [
        ('a', "xa start 'one'"),
        ('a', 'select id from t where id=1 lock in share mode'),
        ('a', 'select id from t where id=7 for update'),
        ('a', "xa end 'one'"),
        ('a', "xa prepare 'one'"),
        ('b', 'select id from t where id=1 for update nowait'),
        ('a', "xa rollback 'one'"),
        ('b', 'select id from t where id=1 for update nowait'),
    ],
    'unique insert waits': [
        ('a', 'begin'),
        ('a', 'insert into t values(8,80,800)'),
        ('b', 'insert into t values(8,81,801)'),
        ('a', 'commit'),
        ('b?',),
    ],
    'unique insert waits, rolled back': [
        ('a', 'begin'),
        ('a', 'insert into t values(8,80,800)'),
        ('b', 'insert into t values(10,81,800)'),
        ('a', 'rollback'),
        ('b?',),
        ('b', 'select * from t where id>5'),
    ],
    'gap': [
        ('a', 'begin'),
        ('a', 'select * from t where v between 15 and 35 for update'),
        ('b', 'insert into t values(6,25,600)'),
        ('a', 'commit'),
        ('b?',),
    ],
    'no gap at read committed': [
        ('a', 'set session transaction isolation level read committed'),
        ('a', 'begin'),
        ('a', 'select * from t where v between 15 and 35 for update'),
        ('b', 'insert into t values(6,25,600)'),
        ('a', 'commit'),
        ('b?',),
    ],
    'rc unlocks non-matching': [
        ('a', 'set session transaction isolation level read committed'),
        ('a', 'begin'),
        ('a', 'update t set u=u+1 where v+0=30'),
        ('b', 'update t set u=u+1 where id=1'),
        ('a', 'commit'),
        ('b?',),
    ],
    'insert into end gap': [
        ('a', 'begin'),
        ('a', 'select * from t where id>4 for update'),
        ('b', 'insert into t values(6,60,600)'),
        ('a', 'commit'),
        ('b?',),
    ],
    'missing row gap': [
        ('a', 'begin'),
        ('a', 'select * from t where id=10 for update'),
        ('b', 'insert into t values(10,60,600)'),
        ('a', 'commit'),
        ('b?',),
    ],
    'gap of an update': [
        ('a', 'begin'),
        ('a', 'update t set u=u+1 where v between 15 and 35'),
        ('b', 'insert into t values(6,20,600)'),
        ('a', 'commit'),
        ('b?',),
    ],
    'gap of a delete, entered by an update': [
        ('a', 'begin'),
        ('a', 'delete from t where v between 15 and 35'),
        ('b', 'update t set v=25 where id=1'),
        ('a', 'rollback'),
        ('b?',),
        ('b', 'select * from t'),
    ],
    'gap backward': [
        ('a', 'begin'),
        ('a', 'select * from t where id<3 order by id desc for update'),
        ('b', 'insert into t values(0,60,600)'),
        ('a', 'commit'),
        ('b?',),
    ],
    'gap of insert select': [
        ('a', 'create table q (id int primary key)'),
        ('a', 'begin'),
        ('a', 'insert into q select id from t where v<25'),
        ('b', 'insert into t values(6,15,600)'),
        ('a', 'rollback'),
        ('b?',),
        ('b', 'drop table q'),
    ],
    'gaps of serializable': [
        ('a', 'set session transaction isolation level serializable'),
        ('a', 'begin'),
        ('a', 'select count(*) from t force index(primary) where id>3'),
        ('b', 'insert into t values(6,15,600)'),
        ('a', 'select count(*) from t force index(primary) where id>3'),
        ('a', 'commit'),
        ('b?',),
    ],
    'two in one gap': [
        ('a', 'begin'),
        ('b', 'begin'),
        ('a', 'select * from t where id=10 for update'),
        ('b', 'select * from t where id=10 for update'),
        ('a', 'insert into t values(10,60,600)'),
        ('b', 'insert into t values(10,61,601)'),
        ('b?',),
        ('a?',),
        ('a', 'commit'),
        ('b', 'rollback'),
        ('a', 'select * from t'),
    ],
    'the lighter one is the victim': [
        ('a', 'begin'),
        ('b', 'begin'),
        ('a', 'update t set v=v+1 where id=1'),
        ('b', 'update t set v=v+1 where id in (2,3,4)'),
        ('a', 'update t set v=0 where id=2'),
        ('b', 'update t set v=0 where id=1'),
        ('b?',),
        ('a?',),
        ('b', 'commit'),
        ('a', 'rollback'),
        ('a', 'select * from t'),
    ],
    'kill waiting': [
        ('a', 'begin'),
        ('a', 'update t set v=1 where id=1'),
        ('b', 'update t set v=2 where id=1'),
        ('kill', 'b'),
        ('b?',),
        ('b', 'select 1'),
        ('a', 'commit'),
        ('b', 'update t set v=3 where id=1'),
    ],
    'dropped connection': [
        ('a', 'begin'),
        ('a', 'update t set v=1 where id=1'),
        ('drop', 'a'),
        ('b', 'update t set v=2 where id=1'),
        ('b?',),
        ('b', 'select v from t where id=1'),
    ],
    'ddl waits': [
        ('a', 'begin'),
        ('a', 'select * from t'),
        ('b', 'alter table t add z int'),
        ('a', 'commit'),
        ('b?',),
        ('b', 'select * from t'),
    ],
    'savepoint keeps lock': [
        ('a', 'begin'),
        ('a', 'savepoint s'),
        ('a', 'update t set v=1 where id=1'),
        ('a', 'rollback to s'),
        ('b', 'update t set v=2 where id=1'),
        ('a', 'commit'),
        ('b?',),
    ],
    'snapshot': [
        ('a', 'start transaction with consistent snapshot'),
        ('b', 'insert into t values(6,6,6)'),
        ('a', 'select count(*) from t'),
        ('a', 'commit'),
        ('a', 'select count(*) from t'),
    ],
    'secondary old version': [
        ('a', 'begin'),
        ('a', 'select count(*) from t'),
        ('b', 'update t set v=v+100'),
        ('b', 'update t set v=v-95 where id=5'),
        ('a', 'select id,v from t force index(v) where v<60 order by v'),
        ('a', 'select v from t force index(v) order by v'),
        ('a', 'commit'),
        ('a', 'select v from t force index(v) order by v'),
    ],
    'fk-less replace race': [
        ('a', 'begin'),
        ('a', 'delete from t where id=3'),
        ('b', 'insert into t values(3,1,1)'),
        ('a', 'rollback'),
        ('b?',),
    ],
    'lock tables': [
        ('a', 'lock tables t write'),
        ('b', 'insert into t values(6,6,6)'),
        ('a', 'unlock tables'),
        ('b?',),
    ],
    'insert select locks': [
        ('a', 'begin'),
        ('a', 'create temporary table q as select * from t where id=1'),
        ('b', 'update t set v=1 where id=1'),
        ('a', 'commit'),
        ('b?',),
    ],
    'xa detach': [
        ('a', "xa start 'q1'"),
        ('a', 'update t set v=5 where id=1'),
        ('a', "xa end 'q1'"),
        ('a', "xa prepare 'q1'"),
        ('drop', 'a'),
        ('b', 'xa recover'),
        ('b', "xa commit 'q1'"),
        ('b', 'select v from t where id=1'),
    ],
    'skip locked': [
        ('a', 'begin'),
        ('a', 'select id from t where id=2 for update'),
        ('a', 'select id from t where v=40 for update'),
        ('b', 'begin'),
        ('b', 'select id from t order by id for update skip locked'),
        ('b', 'select id from t order by id desc for update skip locked'),
        ('b', 'select id, v from t where v>0 order by v for update skip locked'),
        ('b', 'select id from t where u=200 for update skip locked'),
        ('b', 'select id from t where id=2 for update skip locked'),
        ('b', 'select * from t where id in (1,2,3,4) lock in share mode skip locked'),
        ('b', 'update t set v=60 where id=3'),
        ('a', 'select id from t order by id for update skip locked'),
        ('a', 'commit'),
        ('b', 'select id from t order by id for update skip locked'),
        ('b', 'commit'),
    ],
    'a shared read of entries alone locks no rows': [
        ('a', 'begin'),
        ('a', 'select v from t force index (v) where v=20 lock in share mode'),
        ('b', 'update t set u=201 where id=2'),
        ('b', 'update t set v=21 where id=2'),
        ('a', 'commit'),
        ('b?',),
    ],
    'one unique value, read alone with skip locked, locks no row': [
        ('a', 'begin'),
        ('a', 'select u from t where u=200 lock in share mode skip locked'),
        ('b', 'update t set v=21 where id=2'),
        ('b', 'update t set u=201 where id=2'),
        ('a', 'commit'),
        ('b?',),
        ('a', 'begin'),
        ('a', 'select v from t where u=300 lock in share mode skip locked'),
        ('b', 'update t set v=31 where id=3'),
        ('a', 'commit'),
        ('b?',),
    ],
    **{f'entries of rows that another has locked, {lock}': [
        ('a', 'begin'),
        ('a', lock),
        ('b', 'begin'),
        ('b', 'select v from t force index (v) where v>=10 lock in share mode skip locked'),
        ('b', 'select v from t force index (v) where v>=10 order by v desc lock in share mode skip locked'),
        ('b', 'select * from t force index (v) where v>=10 lock in share mode skip locked'),
        ('b', 'select v from t force index (v) where v>=10 for update skip locked'),
        # One unique value is a constant to the server.
        ('b', 'select u from t where u=200 lock in share mode skip locked'),
        ('b', 'select id, u from t where u=200 lock in share mode skip locked'),
        ('b', 'select v from t where u=200 lock in share mode skip locked'),
        ('b', 'select id from t where id=2 lock in share mode skip locked'),
        ('b', 'select u from t where u=201 lock in share mode skip locked'),
        ('b', 'select u from t where u=200 for update skip locked'),
        ('b', 'rollback'),
        ('b', 'select u from t where u=300 lock in share mode nowait'),
        ('b', 'select v from t force index (v) where v=20 lock in share mode nowait'),
        ('b', 'select v from t force index (v) where v between 10 and 30 lock in share mode'),
        ('a', 'commit'),
        ('b?',),
    ] for lock in ('update t set u=201 where id=2', 'select * from t where id=2 for update', 'update t set v=21 where id=2', 'delete from t where id=2')},
    'skip locked: rows that are being inserted and deleted': [
        ('a', 'begin'),
        ('a', 'insert into t values(6,60,600)'),
        ('a', 'delete from t where id=1'),
        ('a', 'update t set v=25 where id=2'),
        ('b', 'set session transaction isolation level read committed'),
        ('b', 'begin'),
        ('b', 'select id from t order by id for update skip locked'),
        ('b', 'select * from t where v>=20 order by v lock in share mode skip locked'),
        ('b', 'select id from t where u=600 for update skip locked'),
        ('a', 'rollback'),
        ('b', 'select id from t order by id for update skip locked'),
        ('b', 'commit'),
    ],
    'skip locked: a row read with it is locked': [
        ('a', 'begin'),
        ('a', 'select id from t order by id limit 2 for update skip locked'),
        ('b', 'begin'),
        ('b', 'select id from t order by id limit 2 for update skip locked'),
        ('b', 'select id from t where id=1 lock in share mode skip locked'),
        ('b', 'update t set v=1 where id=1'),
        ('a', 'update t set v=11 where id=1'),
        ('a', 'commit'),
        ('b?',),
        ('b', 'select id, v from t where id=1'),
        ('b', 'rollback'),
    ],
    'nowait': [
        ('a', 'begin'),
        ('a', 'select id from t where id=2 for update'),
        ('b', 'begin'),
        ('b', 'select id from t where id=1 for update nowait'),
        ('b', 'select id from t where id=2 for update nowait'),
        ('b', 'select * from t where v=20 lock in share mode nowait'),
        ('b', 'select id from t where u=300 for update wait 0'),
        ('b', 'commit'),
        ('b', 'select id from t where id=2 for update nowait'),
        ('a', 'commit'),
        ('b', 'select id from t where id=2 for update nowait'),
    ],
    'semi-consistent read': [
        ('a', 'set session transaction isolation level read committed'),
        ('b', 'set session transaction isolation level read committed'),
        ('a', 'begin'),
        ('a', 'update t set u=u+1 where id in (2,4)'),
        ('b', 'begin'),
        ('b', 'update t ignore index(u,v) set v=v+1 where u=300 or u=100'),
        ('b', 'update t ignore index(u,v) set v=v+1 where u=201'),
        ('b', 'update t ignore index(u,v) set v=v+1 where u=200'),
        ('a', 'commit'),
        ('b?',),
        ('b', 'select * from t'),
        ('b', 'commit'),
        ('a', 'select * from t'),
    ],
    'semi-consistent read: rows that come, go and are looked up': [
        ('a', 'set session transaction isolation level read committed'),
        ('b', 'set session transaction isolation level read committed'),
        ('a', 'begin'),
        ('a', 'insert into t values(9,90,900)'),
        ('a', 'delete from t where id=3'),
        ('b', 'begin'),
        ('b', 'update t ignore index(u,v) set v=7 where u=900'),
        ('b', 'update t ignore index(u,v) set v=v+1 where u>=300 order by id desc'),
        ('a', 'commit'),
        ('b?',),
        ('b', 'select * from t'),
        ('b', 'commit'),
        ('a', 'begin'),
        ('a', 'update t set v=1 where id=1'),
        ('b', 'update t ignore index(u,v) set v=2 where id=1 and v=77'),
        ('a', 'commit'),
        ('b?',),
        ('b', 'select * from t'),
    ],
    'no semi-consistent read in repeatable read': [
        ('a', 'begin'),
        ('a', 'update t set v=11 where id=1'),
        ('b', 'begin'),
        ('b', 'update t ignore index(u,v) set v=0 where u=300'),
        ('a', 'commit'),
        ('b?',),
    ],
}


class Session(Patient):
    def __init__(self, server, database):
        self.connection = server.connect(database=database)
        self.id = self.connection.thread_id()

    def _run(self, statement):
        try:
            cursor = self.connection.cursor()
            cursor.execute(statement)
            rows = cursor.fetchall()
            # DDL: how many rows were copied is the engine's affair.
            self.answer = rows or (0 if statement.startswith("alter") else cursor.rowcount)
        except pymysql.err.Error as error:
            self.answer = ("error",) + error.args[:2]


def play(server, database, engine, steps, patience=0.5):
    """What the sessions see; a session without an answer after `patience` seconds `waits`."""
    control = server.connect(database=database).cursor()
    for statement in SETUP:
        control.execute(statement.replace("@E", engine))
    sessions = {who: Session(server, database) for who in "ab"}
    seen = []
    for step in steps:
        if step[0] == "kill":
            control.execute(f"KILL QUERY {sessions[step[1]].id}")
            time.sleep(0.3)
        elif step[0] == "drop":
            sessions[step[1]].connection.close()
            time.sleep(0.5)
        elif step[0].endswith("?"):
            seen.append((step, sessions[step[0][0]].wait()))
        else:
            seen.append((step, sessions[step[0]].run(step[1].replace("@E", engine), patience)))
    for session in sessions.values():
        session.settle(lambda: control.execute(f"KILL {session.id}"))
        try:
            session.connection.close()
        except pymysql.err.Error:
            pass
    return seen


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_sessions_interact_as_in_innodb(server, db, engine, name):
    # On a busy machine an answer may come late, and look like a wait: a difference that is one stays with more patience.
    for patience in (0.5, 2, 8):
        theirs = play(server, db.name, "InnoDB", SCENARIOS[name], patience)
        ours = play(server, db.name, engine, SCENARIOS[name], patience)
        if ours == theirs:
            return
    assert ours == theirs


def test_a_gap_lock_ends_where_the_condition_ends(server, db):
    """InnoDB locks up to the next existing row; here only the range of the condition is locked, and others insert beside it."""
    steps = [
        ('a', 'begin'),
        ('a', 'select * from t where id=10 for update'),
        ('b', 'insert into t values(11,60,600)'),
        ('a', 'select * from t where v=25 for update'),
        ('b', 'insert into t values(12,26,601)'),
        ('b', 'insert into t values(13,25,602)'),
        ('a', 'commit'),
        ('b?',),
    ]
    expected = [0, 0, 1, 0, 1, "waits", 0, 1]
    seen = []
    for patience in (0.5, 2, 8):
        if seen != expected:
            seen = [answer for _, answer in play(server, db.name, "Terrace", steps, patience)]
    assert seen == expected
