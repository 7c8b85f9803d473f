-- audit_number: sets one audit entry apart from others of the same moment.
SELECT nextval('audit_seq')
