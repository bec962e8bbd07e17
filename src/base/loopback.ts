// Whether a host is loopback: only there may plain HTTP carry a token. Every part that listens, connects, downloads or
// prints a command asks here.

/**
 * Takes the host name of a URL, or a listen address; IPv6 with or without brackets. 127.example.org is not loopback.
 */
export function isLoopback(host: string): boolean {
  return ["localhost", "::1", "[::1]"].includes(host) || /^127(\.\d{1,3}){3}$/.test(host);
}
