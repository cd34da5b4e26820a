-- What the host has found broken of the GPUs that the instance has, and since when we know it: its time is not charged meanwhile.
alter table instances add column gpu_fault TEXT;
alter table instances add column gpu_fault_since_ms INTEGER;
