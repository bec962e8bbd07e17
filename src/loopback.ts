// Whether a host is this machine alone. Where it is, plain HTTP shows a token to nobody else: whoever listens, connects,
// downloads or writes a line for pasting asks here.

/** Of a URL's hostname or of an address to listen on; IPv6 with or without brackets. A name like 127.example.org is none. */
export function isLoopback(host: string): boolean {
  return ["localhost", "::1", "[::1]"].includes(host) || /^127(\.\d{1,3}){3}$/.test(host);
}
