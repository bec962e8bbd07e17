// Machines as the node sees them, for tests: nothing in use, except what a test says.

import { readTenants, type Machine } from "../../src/node/files/granted/machine-facts.ts";
import { readKernel } from "../../src/platform/network/kernel.ts";
import type { MachineState } from "../../src/platform/machine-state.ts";
import type { Socket } from "../../src/platform/network/proc-tables.ts";

export const emptyMachine: MachineState = {
  interfaces: [],
  addresses: [],
  routes: [],
  gateways: [],
  nameServers: [],
  hasIpv6: true,
  defaultDevices: { 4: [], 6: [] },
  namesInterfaces: true,
  // Its engines get the same configuration on each machine that runs the tests.
  kernel: { ...readKernel(), isLinux: false },
  sockets: () => [],
};

/** With the organizations below `root`, which a test has written. */
export function machineAt(root: string, state: Partial<Omit<Machine, "tenants">> = {}): Machine {
  return { ...emptyMachine, hosts: [], tenants: readTenants(root), ...state };
}

export const udp = (port: number, address?: string): Socket => ({ protocol: "udp", address, port });
export const tcp = (port: number, address?: string): Socket => ({ protocol: "tcp", address, port });
