// `ws` is a module of Bun. Its client can limit the size of messages that it receives; the global WebSocket accepts 120 MB.

declare module "ws" {
  type Options = { maxPayload: number; perMessageDeflate: boolean; tls: object; proxy?: string };
  export const WebSocket: new (url: string, options: Options) => globalThis.WebSocket;
}
