-- What the host has found broken of the GPUs that the instance has, and since when we know it: its time is not charged meanwhile.
alter table instances add column gpu_fault TEXT;
alter table instances add column gpu_fault_since_ms INTEGER;
-- When the host has reported them whole again, if it was too soon to count at once.
alter table instances add column gpu_whole_ms INTEGER;
