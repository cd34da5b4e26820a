-- When a launch that never ran gave its GPUs up; null while it is on its way, and for those that ran.
alter table instances add column launch_ended_ms INTEGER;
