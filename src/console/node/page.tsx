// One node: what is wrong with it, how it reaches its peers, who may reach it, what it is, and what can be done with it.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useEffect, useState } from "preact/hooks";
import type { Path } from "../../api/paths/paths.ts";
import type { Node } from "../../protocol/node.ts";
import { onSeen } from "../contact/live.ts";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { mayRenew, type StateName } from "../nodes/states.ts";
import { useCut } from "../needs/use-needs.ts";
import { refresh, useResource } from "../contact/resource.ts";
import { pathOf, useShownName } from "../frame/router.ts";
import { Button } from "../ui/button.tsx";
import { Menu } from "../ui/menu.tsx";
import { Page, Panel } from "../ui/page.tsx";
import { Empty, Loading, signOf } from "../ui/parts.tsx";
import { Pill } from "../ui/tag.tsx";
import { Configuration } from "./configuration.tsx";
import { CertificateBar } from "./certificate-bar.tsx";
import { Changed, changesPath, NodeFacts } from "./facts.tsx";
import { Firewall } from "./firewall.tsx";
import { Paths, isBroken } from "./paths.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { useNeighbours } from "./neighbours.ts";
import { usePeers, WhyOf } from "./why.tsx";
import { stateOnPage } from "./why-words.ts";

/** After a check-in, paths are read again so much later: the control plane writes reported ones within a second. */
const pathsDelayMs = 1200;

/** Reads the node again after its check-ins. They are no events of the audit log: the stream names the nodes in contact. */
function useContacts(path: string, id: string): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const unsubscribe = onSeen((contacts) => {
      if (!contacts.some(([nodeId]) => `${nodeId}` === id)) return;
      void refresh(path);
      clearTimeout(timer);
      timer = setTimeout(() => void refresh(`${path}peers/`), pathsDelayMs);
    });
    return () => {
      clearTimeout(timer);
      unsubscribe();
    };
  }, [path, id]);
}

/** A node with its paths, current while it is shown. */
export function useNode(id: string) {
  const slug = currentSlug.value ?? "";
  const params = { slug, id: Number(id) };
  const path = apiPath(nodesApi.retrieve, params);
  const { data: node, error } = useResource(path);
  const peers = usePeers(slug, params.id, mayAdminister.value);
  useContacts(path, id);
  return { node, error, peers };
}

const pillKinds: Readonly<Partial<Record<StateName, "good" | "warn" | "bad">>> = {
  attention: "bad",
  limited: "warn",
  waiting: "warn",
  online: "good",
};

/** The state of a node, beside its name. */
export function StatePill({ node, peers }: { node: Node; peers: readonly Path[] | undefined }) {
  const [state, word] = stateOnPage(node, {
    // How many paths of the organization have no other way than a relay that is away.
    cut: useCut(currentSlug.value ?? ""),
    broken: peers?.filter(isBroken).length,
  });
  return (
    <Pill sign={signOf[state]} kind={pillKinds[state]}>
      {word}
    </Pill>
  );
}

/** `rest`: the parts of the address behind "nodes": the id. Another node is another component, with a state of its own. */
export function NodePage({ rest: [id = ""] }: { rest: readonly string[] }) {
  return <OneNode key={id} id={id} />;
}

function OneNode({ id }: { id: string }) {
  const slug = currentSlug.value ?? "";
  const { node, error, peers } = useNode(id);
  const { ask, dialog } = useActions(node);
  const hasNeighbours = useNeighbours(id);
  useShownName(node?.name ?? "");
  const above = <a href={pathOf(slug, "nodes")}>Nodes</a>;
  if (error?.status === 404)
    return (
      <Page title="No such node">
        <Empty text="It may have been deleted.">
          <a href={pathOf(slug, "nodes")}>All nodes</a>
        </Empty>
      </Page>
    );
  if (node === undefined)
    return (
      <Page title="" above={above}>
        <Loading rows={16} error={error} />
      </Page>
    );
  // Reserve the space: the content below must not move under the pointer.
  const isReading = mayAdminister.value && (peers.data ?? peers.error) === undefined;
  const isRevoked = node.state === "revoked";
  const edit = (
    <Button kind="ghost" isSmall={true} onClick={() => ask("edit")}>
      Edit<span class="unseen"> the facts</span>
    </Button>
  );
  const renew = (
    <Button kind="ghost" isSmall={true} onClick={() => ask("renew")}>
      Renew
      <span class="unseen"> the certificate</span>
    </Button>
  );
  return (
    <Page
      title={node.name}
      above={above}
      pill={<StatePill node={node} peers={peers.data} />}
      fact={
        hasNeighbours ? (
          <>
            <kbd>k</kbd> <kbd>j</kbd> previous, next
          </>
        ) : undefined
      }
      terminal={{
        command: ["node", "show", slug, node.name],
        call: ["GET", apiPath(nodesApi.retrieve, { slug, id: node.id })],
      }}
      actions={mayAdminister.value ? <TitleActions node={node} ask={ask} /> : null}
    >
      {isReading ? null : <WhyOf node={node} peers={peers.data} />}
      <div class="two" hidden={isReading}>
        <div class="stackd">
          {mayAdminister.value ? <Paths node={node} {...peers} /> : null}
          <Firewall node={node} />
          {node.state === "active" && node.phone == null ? <Configuration node={node} /> : null}
        </div>
        <div class="stackd">
          <Panel title="Facts" hasRoom={true} actions={mayAdminister.value && !isRevoked ? edit : null}>
            <NodeFacts node={node} />
          </Panel>
          <Panel
            title="Certificate"
            hasRoom={true}
            actions={mayAdminister.value && mayRenew(node) ? renew : null}
          >
            <CertificateBar node={node} />
          </Panel>
          <Panel title="Changed" actions={<a href={changesPath(node)}>Look further back in Activity</a>}>
            <Changed node={node} count={8} />
          </Panel>
        </div>
      </div>
      {dialog}
    </Page>
  );
}

type Asked = "edit" | "revoke" | "restore" | "renew";
type Ask = (asked: Asked) => void;

/** The dialogs of what can be done with a node: `ask` opens one, `dialog` is the one that is open. */
export function useActions(node: Node | undefined) {
  const [asked, setAsked] = useState<Asked>();
  const part = usePart(mayAdminister.value ? parts.editing : undefined);
  const Dialog = asked === undefined || asked === "edit" ? undefined : part?.dialogs[asked];
  const close = () => setAsked(undefined);
  const dialog =
    node === undefined ? null : (
      <>
        {asked === "edit" && part !== undefined ? <part.Edit node={node} close={close} /> : null}
        {Dialog === undefined ? null : <Dialog nodes={[node]} close={close} />}
      </>
    );
  return { ask: setAsked, dialog };
}

function TitleActions({ node, ask }: { node: Node; ask: Ask }) {
  if (node.state === "revoked") return <Button onClick={() => ask("restore")}>Restore</Button>;
  return (
    <>
      <span class="group no-phone">
        <Button onClick={() => ask("edit")}>Edit</Button>
        <Button kind="danger" onClick={() => ask("revoke")}>
          Revoke
        </Button>
      </span>
      <span class="only-phone">
        <NodeMenu node={node} ask={ask} />
      </span>
    </>
  );
}

/** All that can be done with a node, in a menu. */
export function NodeMenu({ node, ask, isSmall }: { node: Node; ask: Ask; isSmall?: boolean }) {
  const isRevoked = node.state === "revoked";
  return (
    <Menu label="Edit, renew, revoke" isSmall={isSmall}>
      {isRevoked ? (
        <button type="button" onClick={() => ask("restore")}>
          Restore
        </button>
      ) : (
        <>
          <button type="button" onClick={() => ask("edit")}>
            Edit
          </button>
          {mayRenew(node) ? (
            <button type="button" onClick={() => ask("renew")}>
              Renew certificate
            </button>
          ) : null}
          <button type="button" class="danger" onClick={() => ask("revoke")}>
            Revoke
          </button>
        </>
      )}
    </Menu>
  );
}
