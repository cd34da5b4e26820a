-- An organisation reads its receipts from new to old.
create index request_receipts_of_org on request_receipts (org_id, opened_ms, id);
