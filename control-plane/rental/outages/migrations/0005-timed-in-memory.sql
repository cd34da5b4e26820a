-- Probes of instances without failures are timed in memory: next_ms is 0. Every such instance had a good probe at this time or later.
alter table heartbeats add column good_since_ms INTEGER;

create index probes_failing on probes (machine_id) where failures > 0;
