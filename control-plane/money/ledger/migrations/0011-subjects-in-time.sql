-- A search by subject reads a page in the order of posting, and not all transfers of the subject.
drop index transfers_by_subject;
create index transfers_by_subject on transfers (subject_id, posted_ms);
