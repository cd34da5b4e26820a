-- What is old enough to be forgotten.
create index workloads_gone on workloads (changed_ms) where state = 'gone';
