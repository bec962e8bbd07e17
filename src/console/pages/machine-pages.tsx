// Machines, or one of them, by the segment behind `machines`.

import "../core.ts";
import { Machine } from "./machine.tsx";
import { Machines } from "./machines.tsx";

export function MachinePages({ rest: [id] }: { rest: readonly string[] }) {
  return id === undefined ? <Machines /> : <Machine key={id} id={id} />;
}
