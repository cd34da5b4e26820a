-- Since when two hosts are known to have the identity of this machine; null while there is one. Nothing new is offered there.
alter table machines add column copied_ms INTEGER;
