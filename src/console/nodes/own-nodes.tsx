// The user's own nodes that have to be confirmed again, where the organization requires it.

import { apiPath } from "../../api/endpoint.ts";
import { reauthenticationsApi } from "../../api/enrollments.ts";
import type { Node } from "../../protocol/node.ts";
import { call } from "../contact/api.ts";
import { me, organization } from "../contact/me.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { pathOf } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { FormFailure, useAction } from "../ui/form.tsx";
import { Panel } from "../ui/page.tsx";
import { When } from "../ui/parts.tsx";

const listPath = (slug: string) => apiPath(reauthenticationsApi.list, { slug });

/** The confirmation that the user of a node owes, with its time; undefined if none is due, or if one may not see it. */
export function useDueNode(slug: string, { id, owner_id }: Pick<Node, "id" | "owner_id">) {
  const isAsked = owner_id != null && organization.value?.role != null;
  const { data = [] } = useResource(isAsked ? listPath(slug) : "");
  return data.find(({ node_id }) => node_id === id);
}

/** The panel with the user's own nodes that are due. Staff who are no members have no nodes here, and may not ask. */
export function OwnNodes({ slug }: { slug: string }) {
  return organization.value?.role == null ? null : <DueNodes key={slug} slug={slug} />;
}

function DueNodes({ slug }: { slug: string }) {
  const { data = [] } = useResource(listPath(slug));
  const mine = data.filter(({ owner_id }) => owner_id === me.value?.id);
  const { error, isRunning, run } = useAction(async () => {
    for (const { node_id: id } of mine) await call(reauthenticationsApi.confirm, { slug, id });
    await refresh(listPath(slug));
  });
  if (mine.length === 0) return null;
  return (
    <Panel title="Nodes of yours to confirm">
      <p class="in quiet">
        Each is cut off from the network at its time, unless you confirm that it is still yours.
      </p>
      <ul class="lines one-action">
        {mine.map(({ node_id: id, name, until }) => (
          <li key={id}>
            <a class="name" href={pathOf(slug, "nodes", id)}>
              <bdi>{name}</bdi>
            </a>
            <When at={until} />
          </li>
        ))}
      </ul>
      <div class="in">
        <FormFailure error={error} />
        <Button kind="tint" disabled={isRunning} onClick={run}>
          {mine.length === 1 ? "It is still mine" : `These ${mine.length} are still mine`}
        </Button>
      </div>
    </Panel>
  );
}
