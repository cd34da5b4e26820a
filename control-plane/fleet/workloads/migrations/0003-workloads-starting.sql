-- Since when a container starts: one whose host then says nothing more is not waited for as long as a pull is.
alter table workloads add column starting_ms INTEGER;
