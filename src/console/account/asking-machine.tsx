// The machine that asks, for the user who decides. Its own description proves nothing.

import type { Enrollment } from "../../api/enrollments.ts";
import type { ComponentChildren } from "preact";
import { When } from "../ui/parts.tsx";

export type Asking = Pick<Enrollment, "machine" | "address" | "is_known_network" | "created_at">;

/** `children`: further facts. */
export function AskingMachine({ asking, children }: { asking: Asking; children?: ComponentChildren }) {
  return (
    <dl class="facts">
      <div>
        <dt>Machine, as it calls itself</dt>
        <dd>
          <bdi>{asking.machine}</bdi>
        </dd>
      </div>
      {children}
      <div>
        <dt>Network address</dt>
        <dd>
          <bdi class="mono">{asking.address}</bdi>
          {asking.is_known_network
            ? " (you signed in from this network before)"
            : " (you never signed in from this network)"}
        </dd>
      </div>
      <div>
        <dt>Asked</dt>
        <dd>
          <When at={asking.created_at} />
        </dd>
      </div>
    </dl>
  );
}
