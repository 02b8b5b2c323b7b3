// In the place of @noble/post-quantum: closed events have X25519 recipients alone.
export const MLKEM768P256 = undefined;
export const MLKEM768X25519 = undefined;
