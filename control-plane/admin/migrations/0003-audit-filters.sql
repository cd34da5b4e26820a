-- What one operator did, each time that one thing was done, and what was done to one subject, newest first.
create index audit_entries_of_actor on audit_entries (actor, at_ms, id);

create index audit_entries_of_operation on audit_entries (operation, at_ms, id);

create index audit_entries_of_subject on audit_entries (subject_id, at_ms, id);
