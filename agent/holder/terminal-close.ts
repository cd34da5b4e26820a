// WebSocket close codes of the console, beside its words: a page needs these and has no use for the schemas.

/** After these a page does not come back by itself. */
export const TERMINAL_CLOSE = { ended: 4000, taken: 4001 } as const;
