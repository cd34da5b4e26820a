-- A supplier reads its entries from new to old: what it earned, what was taken back, what it was paid.
create index transfers_earned on transfers (credit_account_id, posted_ms, id) where substr(credit_account_id, 1, 17) = 'supplier_payable:';
create index transfers_taken_back on transfers (debit_account_id, posted_ms, id)
where substr(debit_account_id, 1, 17) = 'supplier_payable:' and kind <> 'payout';
create index transfers_payouts on transfers (debit_account_id, posted_ms, id) where kind = 'payout';
