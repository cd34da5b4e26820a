-- The few transfers of a rental that its segments do not give: what a page of costs reads of many rentals.
create index transfers_beside_segments on transfers (subject_id, kind, debit_account_id, credit_account_id, amount_ucents)
where kind in ('rental.shortfall', 'rental.refund_charge') or substr(kind, 1, 7) = 'credit.' or substr(kind, 1, 11) = 'correction.';
