// What is left to do after a node was made a router or an exit: whole lines for the machines, each with its button.

import { apiPath } from "../../api/endpoint.ts";
import { routesApi } from "../../api/paths/routes.ts";
import { currentSlug } from "../contact/me.ts";
import { useList } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { CloseEnd } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Line, Loading } from "../ui/parts.tsx";
import { machineLine } from "../words/terminal.ts";
import { offersWith } from "./offers.ts";

/** The node by its name, and what leads through it: networks, the internet for groups, or both. */
export type Way = { name: string; networks?: readonly string[]; groups?: readonly string[] };

/** The lines for the router or exit, then those for nodes that use it. */
export function NextSteps({ name, networks = [], groups = [] }: Way) {
  const slug = currentSlug.value ?? "";
  const { data, error } = useList(apiPath(routesApi.list, { slug }, { page_size: "1000" }));
  // Without the routes, the line would drop the networks that the node already offers.
  if (data === undefined) return <Loading error={error} />;
  const offers = offersWith(networks, name, data);
  const offer = [
    ...(networks.length === 0 ? [] : ["--advertise", offers.join(",")]),
    ...(groups.length === 0 ? [] : ["--advertise-exit"]),
  ];
  return (
    <>
      <p>
        On <bdi>{name}</bdi>, as root:
      </p>
      <Line text={machineLine("up", slug, ...offer)} />
      {networks.length === 0 ? null : (
        <p>
          This replaces the networks that the node offers. Without <code>+masquerade</code>, hosts behind it
          need a route back. Who may reach it: <a href={pathOf(slug, "access")}>Access</a>
        </p>
      )}
      {groups.length === 0 ? null : (
        <>
          <Line text="sudo sysctl -w net.ipv4.ip_forward=1" />
          <p>
            Then on nodes that should use it (<bdi>{groups.join(", ")}</bdi>):
          </p>
          <Line text={machineLine("exit", "use", name)} />
        </>
      )}
    </>
  );
}

/** The same as a dialog, after the change was saved. */
export const Next = ({ title = "Saved", way, close }: { title?: string; way: Way; close(): void }) => (
  <Dialog title={title} close={close}>
    <NextSteps {...way} />
    <CloseEnd close={close} />
  </Dialog>
);
