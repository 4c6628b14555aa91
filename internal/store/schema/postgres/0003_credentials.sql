-- Whether a passkey was removed is asked at each of its signatures.
CREATE INDEX write_credentials ON write_records (target, status) WHERE kind = 'credential';
