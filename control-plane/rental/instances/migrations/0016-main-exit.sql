-- How the main process has ended, as JSON; null while it runs.
alter table instances add column main_exit TEXT;
