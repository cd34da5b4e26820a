-- Since when a container starts: one whose host then says nothing more is not waited for as long as a pull is.
alter table workloads add column starting_ms INTEGER;
-- When the host first reported that the program of a job has ended: no time after it is priced.
alter table workloads add column ended_ms INTEGER;
