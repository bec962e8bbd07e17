// The dialogs of what can be done with one node or with several: change groups, renew, revoke, restore.

import { organizationsApi } from "../../api/organizations.ts";
import { apiPath, type Endpoint } from "../../api/endpoint.ts";
import { nodesApi } from "../../api/nodes.ts";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Asking } from "../ui/lazy-parts.ts";
import { call } from "../contact/api.ts";
import { partsOf } from "../words/field-parts.ts";
import { currentSlug } from "../contact/me.ts";
import { useNodes } from "./node-list.ts";
import { refresh } from "../contact/resource.ts";
import { lossWith } from "./role-loss.ts";
import { pathOf } from "../frame/router.ts";
import { item, type Terminal } from "../words/terminal.ts";
import { Bulk, type Item } from "../ui/bulk.tsx";
import { FromTerminal } from "../ui/parts.tsx";
import { GroupsField } from "../pages/groups-field.tsx";
import { revokingWords, useReason } from "./revoke-reason.tsx";

/** What all these dialogs have in common. One node is called by its name, several by their number. */
const bulkProps = ({ nodes, close }: Asking, verb: string) => ({
  action: `${verb} ${nodes.length === 1 ? nodes[0]?.name : `${nodes.length} nodes`}`,
  items: nodes,
  hasNames: nodes.length > 1,
  after: () => refresh(apiPath(organizationsApi.retrieve, { slug: currentSlug.value ?? "" })),
  close,
});
const withSlug = (path: string) => path.replace("{slug}", currentSlug.value ?? "");

/**
 * The same from the terminal, for each node: of several, `item` stands for the name in a loop of the shell. `query`: of the API call,
 * with its question mark.
 */
function terminalOf(
  nodes: readonly Item[],
  verb: string,
  { method, path }: Pick<Endpoint, "method" | "path">,
  flags: readonly string[] = [],
  query = "",
): Terminal {
  const slug = currentSlug.value ?? "";
  const [one, ...others] = nodes;
  const isOne = one !== undefined && others.length === 0;
  return {
    command: ["node", verb, slug, isOne ? one.name : item, ...flags],
    ...(isOne ? {} : { each: nodes.map(({ name }) => name) }),
    call: [method, withSlug(isOne ? path.replace("{id}", `${one.id}`) : path) + query],
  };
}

function Groups(props: Asking) {
  const { nodes } = props;
  const slug = currentSlug.value ?? "";
  const [adds, setAdds] = useState("");
  const [removes, setRemoves] = useState("");
  const [added, removed] = [partsOf(adds), partsOf(removes)];
  const flags = [
    ...added.flatMap((group) => ["--add-group", group]),
    ...removed.flatMap((group) => ["--remove-group", group]),
  ];
  const run = async ({ id }: Item) => {
    // The list may be a moment old, and the request replaces all groups.
    const { groups: before } = await call(nodesApi.retrieve, { slug, id });
    const groups = [...new Set([...before, ...added])].filter((group) => !removed.includes(group));
    if (groups.join("\n") !== before.join("\n")) await call(nodesApi.update, { slug, id }, { groups });
  };
  return (
    <Bulk {...bulkProps(props, "Change the groups of")} run={run}>
      <GroupsField
        label="Add to groups"
        help="Separated by commas. A new name makes a new group."
        value={adds}
        set={setAdds}
      />
      <GroupsField label="Remove from groups" help="Separated by commas." value={removes} set={setRemoves} />
      <FromTerminal
        {...terminalOf(nodes, "update", nodesApi.update, flags)}
        call={["PATCH", withSlug(nodesApi.update.path), { groups: ["…"] }]}
      />
    </Bulk>
  );
}

type PlainEndpoint = (typeof nodesApi)["renewCertificate" | "restore"];

/** The dialog of an action without a form. `words`: of its question. `verb`: of the command. */
const plainDialog =
  (words: string, verb: string, endpoint: PlainEndpoint, effect: () => ComponentChildren) =>
  (props: Asking) => (
    <Bulk
      {...bulkProps(props, words)}
      run={({ id }: Item) => call(endpoint, { slug: currentSlug.value ?? "", id })}
    >
      {effect()}
      <FromTerminal {...terminalOf(props.nodes, verb, endpoint)} />
    </Bulk>
  );

function Revoke(props: Asking) {
  const { nodes } = props;
  const slug = currentSlug.value ?? "";
  const { data: all = [] } = useNodes();
  const lost = lossWith(nodes, all);
  const { field, query, given, flags } = useReason();
  return (
    <Bulk
      {...bulkProps(props, "Revoke")}
      isDanger={true}
      asksCount={true}
      run={({ id }: Item) => call(nodesApi.revoke, { slug, id }, given)}
    >
      <p>
        {revokingWords(
          nodes.length === 1,
          nodes.some(({ phone }) => phone),
        )}
      </p>
      {lost.map((sentence) => (
        <p class="limited" key={sentence}>
          <bdi>{sentence}</bdi>
        </p>
      ))}
      {field}
      <FromTerminal {...terminalOf(nodes, "revoke", nodesApi.revoke, flags, query)} />
    </Bulk>
  );
}

/** By the verbs of selected-actions.tsx. */
export const dialogs = {
  groups: Groups,
  renew: plainDialog("Renew the certificates of", "renew", nodesApi.renewCertificate, () => (
    <p>A new certificate comes with the next check-in. No connection is lost.</p>
  )),
  revoke: Revoke,
  restore: plainDialog("Restore", "restore", nodesApi.restore, () => (
    <>
      <p>
        A restored node gets a new certificate for its former keys when it is next online. Then the others
        accept it again.
      </p>
      <p class="limited">
        If a stranger may have had it, do not restore it:{" "}
        <a href={pathOf(currentSlug.value ?? "", "nodes", "add")}>add it</a> anew, with new keys.
      </p>
    </>
  )),
};
