// What is left to do after a node was made a router or an exit: whole lines for the machines, each with its button.

import { currentSlug } from "../contact/me.ts";
import { pathOf } from "../frame/router.ts";
import { CloseEnd } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Line } from "../ui/parts.tsx";
import { machineLine } from "../words/terminal.ts";

/** The node by its name, and what leads through it: networks, or the internet for groups. */
export type Way = { name: string; networks?: readonly string[]; groups?: readonly string[] };

export function NextSteps({ name, networks, groups = [] }: Way) {
  const slug = currentSlug.value ?? "";
  const offer =
    networks === undefined
      ? ["--advertise-exit"]
      : ["--advertise", networks.map((each) => `${each}+masquerade`).join(",")];
  return (
    <>
      <p>
        On <bdi>{name}</bdi>, as root:
      </p>
      <Line text={machineLine("up", slug, ...offer)} />
      {networks === undefined ? (
        <>
          <Line text="sudo sysctl -w net.ipv4.ip_forward=1" />
          <p>
            Then on nodes that should use it (<bdi>{groups.join(", ")}</bdi>):
          </p>
          <Line text={machineLine("exit", "use", name)} />
        </>
      ) : (
        <p>
          Without <code>+masquerade</code>, hosts behind it need a route back. Who may reach it:{" "}
          <a href={pathOf(slug, "access")}>Access</a>
        </p>
      )}
    </>
  );
}

/** The change is saved: the same as a dialog. */
export const Next = ({ title = "Saved", way, close }: { title?: string; way: Way; close(): void }) => (
  <Dialog title={title} close={close}>
    <NextSteps {...way} />
    <CloseEnd close={close} />
  </Dialog>
);
