-- What a scrape of the metrics counts, without a read of whole tables.
create index deposits_held on deposits (status, id) where status = 'held_screening';
drop index deposits_noted;
create index deposits_noted on deposits (note, id) where note is not null;
create index deposit_addresses_imported on deposit_addresses (family, deposit_id, key_fingerprint) where key_fingerprint is null;
