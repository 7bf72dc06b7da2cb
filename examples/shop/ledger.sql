-- What service payments writes to, when it is run with payments-ledger.yaml. No table says that an order is unique.
CREATE TABLE ledger (
    entry bigserial PRIMARY KEY,
    customer text NOT NULL,
    "order" text NOT NULL,
    cents bigint NOT NULL,
    entered timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE turnover (
    customer text PRIMARY KEY,
    payments bigint NOT NULL,
    cents bigint NOT NULL
);
