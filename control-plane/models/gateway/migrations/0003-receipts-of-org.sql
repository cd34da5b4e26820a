-- An organisation reads its receipts from new to old.
create index request_receipts_of_org on request_receipts (org_id, opened_ms, id);

-- The same of one of its users.
create index request_receipts_of_user on request_receipts (org_id, end_user, opened_ms, id) where end_user is not null;
