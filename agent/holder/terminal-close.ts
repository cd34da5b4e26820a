// WebSocket close codes of the console. They have their own file, because the page needs them but not the schemas of the messages.

/** After these codes the page does not reconnect by itself. */
export const TERMINAL_CLOSE = { ended: 4000, taken: 4001 } as const;
