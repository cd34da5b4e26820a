-- What the instance got of the host where it was placed last, as JSON; null before that, and for instances from before this version.
alter table instances add column placed TEXT;
