# One command per intent, the same for a person and for CI.
.PHONY: help run stop test lint simulate fuzz planted bench profile suites parity differ apps torture clean

run: ## installs, builds, starts MariaDB with Terrace on 127.0.0.1:3307, loads data, asks, shows
	@scripts/run.sh
help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10
stop: ## stops the server that `make run` left
	@scripts/server.sh stop var
test: ## installs, builds, runs every test
	@scripts/test.sh
lint: ## formatting and clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets
simulate: ## power loss in the simulation, for longer: SEEDS=1000
	TERRACE_SEEDS=$(or $(SEEDS),500) cargo test --release -p terrace-engine --features planted-bugs --test old_versions --test storage_crash --test txn_crash
bench: ## one benchmark: NAME=kv-memory, kv-tiered, memory, fig6, fig7, fig8a, fig8b, fig8c, traces, or sql-bypass, -cold, -disk, -first, -flash, -instructions, -load, -memory, -tables, -tpcc
	@scripts/bench.sh $(NAME)
profile: ## records anew what the engine does most, for the compiler (crates/sql/profile)
	@scripts/profile.sh
suites: ## the server's own test suites, InnoDB beside Terrace: SUITE=engines/iuds, or all that are known; TEST=one; RECORD=1: how tests differ is as it should be
	@scripts/suites.sh $(SUITE) $(addprefix --test ,$(TEST)) $(if $(RECORD),--record)
parity: ## what docs/sql.md says of InnoDB, MyRocks and Terrace, played on each
	@scripts/parity.sh
fuzz: ## one fuzz target under libFuzzer: NAME=tree, TIME=60 seconds
	@scripts/fuzz.sh $(NAME)
differ: ## random SQL against InnoDB and Terrace: TIME=3600 seconds, SEED=1
	@scripts/differ.sh
apps: ## other people's programs on Terrace: go-tpc's TPC-C and TPC-H, a JDBC program, SQLAlchemy; WHAT=django: Django's own tests; WHAT="schemas mediawiki wordpress": Debian's packages
	@scripts/apps.sh
torture: ## a mixed run on all tiers, hurt now and then: TIME=7200 seconds, KILLS=600 to kill the server each ten minutes
	@scripts/torture.sh
planted: ## each planted bug must be found
	cargo test --release -p terrace-engine --features planted-bugs --lib --test build --test copy --test every_step --test halves --test large_gone --test large_past --test large_unread --test leaks --test load --test old_versions --test pace --test patches --test phantoms --test prepared --test put_back --test row_ranges --test storage_crash --test temporary --test txn_crash --test txn_locks --test write_policies planted -- --ignored
	cargo test --release -p terrace-tier --features planted-bugs --lib --test flash_model --test sink --test sink_lives planted -- --ignored
clean: ## removes target/
	rm -rf target
