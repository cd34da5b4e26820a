-- When the host reported `main_exit`; null while the main process runs.
alter table instances add column main_exit_ms INTEGER;
