// The address from which the forwarder sends to an engine of the same machine.

import { networkInterfaces } from "node:os";

/**
 * An address of this machine from which the forwarder sends to the engine; undefined if there is none but loopback and link-local
 * ones. The engine tells other nodes the address at which it sees a node, so it must not see loopback: for each of them, that is
 * the machine itself. What they send to this address is dropped, because the forwarder's socket is connected to the engine alone.
 */
export async function ownAddress(): Promise<string | undefined> {
  // The kernel chooses the address when a socket is connected, which sends no packet. The targets are addresses for
  // documentation (RFC 5737, 3849), to which the default route leads.
  for (const hostname of ["192.0.2.1", "2001:db8::1"]) {
    const address = await Bun.udpSocket({
      hostname: hostname.includes(":") ? "::" : "0.0.0.0",
      connect: { hostname, port: 9 },
    }).then(
      (socket) => {
        const found = socket.address.address;
        socket.close();
        return found;
      },
      () => undefined,
    );
    if (address !== undefined && !isOfMachineAlone(address)) return address;
  }
  const all = Object.values(networkInterfaces()).flatMap((each = []) => each);
  return all.find(({ internal, address }) => !internal && !isOfMachineAlone(address))?.address;
}

/** Unspecified, loopback and link-local addresses, which other machines cannot use. */
const isOfMachineAlone = (address: string) => /^(127\.|0\.0\.0\.0|::1?$|fe80:|169\.254\.)/.test(address);
