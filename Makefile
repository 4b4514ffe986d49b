# One command per intent, the same for a person and for CI.
.PHONY: help run kv files stop test lint simulate fuzz planted bench profile suites parity differ apps torture clean

run: ## installs, builds, starts MariaDB with Terrace on 127.0.0.1:3307, loads data, queries it, shows where pages are
	@scripts/run.sh
kv: ## builds, starts `terrace kv` on 127.0.0.1:6380, loads data, asks, shows where values are
	@scripts/kv.sh
files: ## builds, starts an S3 server and `terrace files` over it, reads 10,000 small files, with pandas and DuckDB too, shows where they are, stops both
	@scripts/files.sh
help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10
stop: ## stops the servers that `make run` and `make kv` left
	@scripts/server.sh stop var
	@scripts/kv.sh stop
test: ## installs, builds, runs every test
	@scripts/test.sh
lint: ## lock files, formatting, clippy, how the source tree is divided, and words in documents and scripts
	@scripts/locks.sh
	cargo fmt --all --check
	python3 scripts/rooms.py --self-test
	python3 scripts/rooms.py
	cargo clippy --workspace --all-targets -- --deny warnings
	@scripts/words.py
simulate: ## power loss in the simulation, with more seeds: SEEDS=1000
	TERRACE_SEEDS=$(or $(SEEDS),500) cargo test --release -p terrace-engine --features planted-bugs --test durable_reads --test old_versions --test storage_crash --test txn_crash
bench: ## runs one benchmark: NAME=embedded, files, kv-memory, kv-redis, kv-tiered, memory, fig6, fig7, fig8a, fig8b, fig8c, fig-split, split, table2, traces, or sql-bypass, -cold, -disk, -first, -flash, -foreign-keys, -instructions, -load, -locks, -memory, -tables, -tpcc
	@scripts/bench.sh $(NAME)
profile: ## records the compiler's profile of the engine again (crates/sql/profile)
	@scripts/profile.sh
suites: ## runs the server's own test suites on InnoDB and Terrace: SUITE=engines/iuds (default: all known); TEST=one; RECORD=1: records the differences as expected
	@scripts/suites.sh $(SUITE) $(addprefix --test ,$(TEST)) $(if $(RECORD),--record)
parity: ## plays the parity table of docs/sql.md on InnoDB, MyRocks and Terrace
	@scripts/parity.sh
fuzz: ## runs one fuzz target under libFuzzer: NAME=tree, TIME=60 seconds
	@scripts/fuzz.sh $(NAME)
differ: ## runs random SQL on InnoDB and Terrace and compares: TIME=3600 seconds, SEED=1; WHAT=kv: random commands on redis-server and `terrace kv`
	@scripts/differ.sh
apps: ## runs other people's programs on Terrace: go-tpc's TPC-C and TPC-H, a JDBC program, SQLAlchemy; WHAT=django: Django's own tests; WHAT="schemas mediawiki wordpress": Debian's packages
	@scripts/apps.sh
torture: ## a mixed run on all tiers with failures injected: TIME=7200 seconds, KILLS=600 kills the server every ten minutes
	@scripts/torture.sh
planted: ## checks that the tests find each planted bug
	@scripts/planted-handler.sh
	cargo test -p terrace-io --test split_model --test split_reader planted -- --ignored
	cargo test --release -p terrace-engine --features planted-bugs --lib --test archive --test attach --test backup --test build --test clone --test copy --test cursors --test durable_reads --test every_step --test halves --test large_gone --test large_past --test large_unread --test leaks --test load --test many_locks --test old_versions --test patches --test phantoms --test prepared --test put_back --test redefine --test row_ranges --test storage_crash --test temporary --test txn_crash --test txn_locks --test two_writers --test write_policies --test write_throttle planted -- --ignored
	cargo test --release -p terrace --features planted-bugs --test embedded_model planted -- --ignored
	cargo test --release -p terrace-log --features planted-bugs --lib planted -- --ignored
	cargo test --release -p terrace-tier --features planted-bugs --lib --test block_model --test flash_model --test sink --test sink_lives --test split_pages planted -- --ignored
	cargo test --release -p terrace-files --features planted-bugs --lib --test groups --test packing_sim --test peers planted -- --ignored
	cargo test --release -p terrace-kv --features planted-bugs --lib --test absent_keys --test failing_storage --test large_model --test redis_storage --test tiering_model --test write_back_model planted -- --ignored
clean: ## removes target/
	rm -rf target
