-- Kinds of which there are few, for the hourly proofs. Without these, each proof would read all transfers.
create index transfers_refunds on transfers (evidence, amount_ucents) where kind = 'rental.refund_charge';
create index transfers_of_held on transfers (id, amount_ucents) where (substr(kind, 1, 7) = 'credit.' or kind = 'own_outage.released');
