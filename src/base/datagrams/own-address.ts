// The address from which the forwarder sends to an engine of the same machine.

import { networkInterfaces } from "node:os";

/**
 * The address of this machine from which datagrams go to its engine. The engine tells other nodes where it sees a node, so it
 * must never see loopback: at this address of the machine itself nothing answers them, because the socket is connected.
 */
export async function ownAddress(): Promise<string | undefined> {
  // The kernel chooses the address of a connected socket; no packet is sent. These are for documentation (RFC 5737, 3849).
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

const isOfMachineAlone = (address: string) => /^(127\.|0\.0\.0\.0|::1?$|fe80:|169\.254\.)/.test(address);
