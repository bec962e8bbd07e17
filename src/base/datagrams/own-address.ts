// The address from which the forwarder sends to an engine of the same machine.

import { networkInterfaces } from "node:os";

/**
 * An address of this machine from which the forwarder sends to the engine; undefined if there is none but loopback and link-local
 * ones. The engine tells other nodes the address at which it sees a node, so it must not see loopback: for each of them, that is
 * the machine itself. What they send to this address is dropped, because the forwarder's socket is connected to the engine alone.
 */
export async function ownAddress(): Promise<string | undefined> {
  // Addresses for documentation (RFC 5737, 3849), to which the default route leads.
  for (const hostname of ["192.0.2.1", "2001:db8::1"]) {
    const address = await addressTowards(hostname);
    if (address !== undefined && !isOfMachineAlone(address)) return address;
  }
  // There is no default route.
  const usable = Object.values(networkInterfaces())
    .flatMap((each = []) => each)
    .filter(({ internal, address }) => !internal && !isOfMachineAlone(address));
  return (usable.find(({ mac }) => mac !== withoutMac) ?? usable[0])?.address;
}

/** Of tun devices. That of an engine comes last: it takes no packet from its own network. */
const withoutMac = "00:00:00:00:00:00";

/** The kernel chooses it when a socket is connected, which sends no packet. Undefined without a route. */
async function addressTowards(hostname: string): Promise<string | undefined> {
  try {
    const socket = await Bun.udpSocket({
      hostname: hostname.includes(":") ? "::" : "0.0.0.0",
      connect: { hostname, port: 9 },
    });
    const { address } = socket.address;
    socket.close();
    return address;
  } catch {
    // Bun throws it at once, instead of rejecting.
    return undefined;
  }
}

/** Unspecified, loopback and link-local addresses, which other machines cannot use. */
const isOfMachineAlone = (address: string) => /^(127\.|0\.0\.0\.0|::1?$|fe80:|169\.254\.)/.test(address);
