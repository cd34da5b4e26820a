-- When the person last switched to the organisation; 0: never. A sign-in begins in the one that was chosen last.
alter table members add column chosen_ms INTEGER not null default 0;
