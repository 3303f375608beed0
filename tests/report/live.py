"""A notebook's cell alive in a browser: a real kernel, the widgets' own JavaScript as its wheel ships it, and between them the
smallest page that a classic notebook could be. Nothing is fetched: ``ipywidgets``, ``ipykernel`` and their dependencies suffice.

The page speaks Jupyter's messages over a WebSocket, as notebooks do; the server passes them on to the kernel and notes how long
the kernel is busy with each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPT = Path(sys.prefix) / "share" / "jupyter" / "nbextensions" / "jupyter-js-widgets" / "extension.js"
VIEW = "application/vnd.jupyter.widget-view+json"
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>a cell</title><link rel="icon" href="data:,">
<style>.nothing { display: none; } body { margin: 16px; font: 14px system-ui, sans-serif; } :root { --jp-widgets-font-size: 13px; --jp-widgets-inline-height: 28px;
--jp-widgets-inline-label-width: 80px; --jp-widgets-margin: 2px; --jp-widgets-inline-margin: 4px; --jp-widgets-color: #000;
--jp-widgets-slider-handle-size: 16px; --jp-widgets-slider-track-thickness: 4px; --jp-widgets-slider-handle-border-color: #888;
--jp-widgets-slider-handle-background-color: #fff; --jp-widgets-slider-border-width: 1px; --jp-widgets-slider-active-handle-color: #2196f3;
--jp-widgets-input-border-color: #888; --jp-widgets-input-border-width: 1px; --jp-border-color1: #ccc; --jp-layout-color3: #ccc; }</style>
</head><body><div class="nothing"><ul><li id="help_menu"></li></ul></div><div id="cell"></div>
<script>__SHIM__</script><script src="/extension.js"></script><script>__START__</script></body></html>"""
SHIM = """
const none = () => {}, quiet = { on: none, trigger: none };
window.Jupyter = { version: "6.5.7", notification_area: { widget: () => ({}) }, menubar: { actions: { get: () => ({}), register: none } } };
class Comm {
  constructor(target, id) { this.target_name = target; this.comm_id = id || crypto.randomUUID(); this.message = this.closed = none; }
  send(data, callbacks, metadata, buffers) { return kernel.send_shell_message("comm_msg", { comm_id: this.comm_id, data }, callbacks, metadata); }
  close(data, callbacks, metadata) { return kernel.send_shell_message("comm_close", { comm_id: this.comm_id, data: data || {} }, callbacks, metadata); }
  on_msg(what) { this.message = what; } on_close(what) { this.closed = what; }
}
const comms = { targets: {}, open: {}, register_target(name, what) { this.targets[name] = what; },
  register_comm(comm) { this.open[comm.comm_id] = comm; comm.kernel = kernel; return comm.comm_id; },
  new_comm(target, data, callbacks, metadata, id, buffers) {
    const comm = new Comm(target, id); this.register_comm(comm);
    kernel.send_shell_message("comm_open", { comm_id: comm.comm_id, target_name: target, data: data || {} }, callbacks, metadata); return comm; } };
const waiting = {};
const kernel = window.kernel = { comm_manager: comms, is_connected: () => true,
  send_shell_message(type, content, callbacks, metadata) { const id = crypto.randomUUID(); waiting[id] = callbacks || {};
    socket.send(JSON.stringify({ id, type, content, metadata: metadata || {} })); return id; },
  comm_info(target, then) { kernel.send_shell_message("comm_info_request", { target_name: target }, { shell: { reply: then } }); } };
comms.kernel = kernel;
window.Jupyter.notebook = { metadata: {}, events: quiet, kernel: null, get_cells: () => [], container: { on: none },
  keyboard_manager: { register_events: none, enable: none, disable: none, actions: { register: none } } };
const socket = new WebSocket("ws://" + location.host + "/channels");
socket.onmessage = async (event) => {
  const message = JSON.parse(event.data), about = waiting[message.parent_header.msg_id] || {}, id = message.content.comm_id;
  if (message.channel === "shell") { if (about.shell && about.shell.reply) about.shell.reply(message); return; }
  if (message.msg_type === "status" && about.iopub && about.iopub.status) about.iopub.status(message);
  if (message.msg_type === "comm_open" && comms.targets[message.content.target_name]) {
    const comm = new Comm(message.content.target_name, id); comms.register_comm(comm); comms.targets[comm.target_name](comm, message); }
  if (message.msg_type === "comm_msg" && comms.open[id]) await comms.open[id].message(message);
  if (message.msg_type === "comm_close" && comms.open[id]) comms.open[id].closed(message);
};
class OutputArea {} OutputArea.prototype.register_mime_type = none;
const modules = { module: { uri: "/extension.js" }, "base/js/namespace": Jupyter, "base/js/events": quiet, "base/js/dialog": {},
  "notebook/js/outputarea": { OutputArea }, "services/kernels/comm": { Comm } };
window.requirejs = window.require = (names, then) => then(...names.map((name) => modules[name]));
requirejs.config = none;
window.define = (names, make) => { modules.widgets = make(...names.map((name) => modules[name])); };
"""
START = """
const start = async () => {
  await modules.widgets.load_ipython_extension();
  Jupyter.notebook.kernel = kernel;
  modules.widgets.load_ipython_extension();  // a second time: now there is a kernel, and its manager is made
  const manager = kernel.widget_manager, model = "__MODEL__";
  while (!manager.has_model(model)) await new Promise((done) => setTimeout(done, 50));
  const view = await manager.create_view(await manager.get_model(model));
  document.getElementById("cell").append(view.luminoWidget.node);
  view.luminoWidget.processMessage({ type: "after-attach", isConflatable: false });
  document.documentElement.dataset.ready = "yes";
};
if (socket.readyState === 1) start(); else socket.onopen = start;
"""


@dataclass
class Cell:
    """A cell that shows a widget: where its page is, and seconds that the kernel was busy with each message from it."""

    address: str
    busy_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class _Server:
    """Kernel and page in a thread with a loop of its own."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.cell: Cell | None = None
        self.failed: BaseException | None = None
        self.up, self.stop = threading.Event(), threading.Event()
        self.sockets: set[Any] = set()
        self.began: dict[str, Any] = {}

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # told to the test, which waits for it
            self.failed = error
        finally:
            self.up.set()

    async def _serve(self) -> None:
        from jupyter_client.manager import AsyncKernelManager

        manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
        await manager.start_kernel(cwd=str(ROOT))
        self.client = manager.client()
        self.client.start_channels()
        try:
            await self.client.wait_for_ready(timeout=60)
            await self._listen(await self._model())
            readers = [asyncio.create_task(self._pass_on(name)) for name in ("iopub", "shell")]
            self.up.set()
            while not self.stop.is_set():
                await asyncio.sleep(0.05)
            for reader in readers:
                reader.cancel()
            await self._hang_up()
        finally:
            self.client.stop_channels()
            await manager.shutdown_kernel(now=True)

    async def _hang_up(self) -> None:
        """Close every connection: one that is left open is told of later, in a test that has nothing to do with it."""
        self.server.stop()
        for channels in list(self.sockets):
            channels.ws_connection.stream.close()
        await self.server.close_all_connections()
        await asyncio.sleep(0.05)  # handlers hear that they have been closed

    async def _model(self) -> str:
        """Run the cell; the id of the model that it shows."""
        asked = self.client.execute(self.code)
        model = None
        while True:
            message = await self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if message["msg_type"] == "error":
                raise RuntimeError("\n".join(content["traceback"]))
            if VIEW in content.get("data", {}):
                model = content["data"][VIEW]["model_id"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                if model is None:
                    raise RuntimeError("the cell shows no widget")
                return str(model)

    async def _listen(self, model: str) -> None:
        from tornado import httpserver, netutil, web, websocket

        outer, page = self, PAGE.replace("__SHIM__", SHIM).replace("__START__", START.replace("__MODEL__", model))

        class Page(web.RequestHandler):
            def get(self) -> None:
                self.set_header("Content-Type", "text/html; charset=utf-8")
                self.write(page)

        class Script(web.RequestHandler):
            def get(self) -> None:
                self.set_header("Content-Type", "text/javascript; charset=utf-8")
                self.write(SCRIPT.read_bytes())

        class Channels(websocket.WebSocketHandler):
            def open(self, *args: str, **kwargs: str) -> None:
                outer.sockets.add(self)

            def on_close(self) -> None:
                outer.sockets.discard(self)

            def on_message(self, message: str | bytes) -> None:
                outer.send(json.loads(message))

        sockets = netutil.bind_sockets(0, "127.0.0.1")
        self.server = httpserver.HTTPServer(
            web.Application([("/", Page), ("/extension.js", Script), ("/channels", Channels)])
        )
        self.server.add_sockets(sockets)
        self.cell = Cell(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/")

    def send(self, said: dict[str, Any]) -> None:
        """A message of the page to the kernel."""
        message = self.client.session.msg(said["type"], said["content"], metadata=said["metadata"])
        message["header"]["msg_id"] = message["msg_id"] = said["id"]
        self.client.shell_channel.send(message)

    async def _pass_on(self, channel: str) -> None:
        """The kernel's messages to the page, and how long it was busy with each of the page's."""
        assert self.cell is not None
        while True:
            message = await getattr(self.client, f"get_{channel}_msg")(timeout=None)
            parent, content = message["parent_header"], message["content"]
            if message["msg_type"] == "status" and parent.get("msg_type") == "comm_msg":
                if content["execution_state"] == "busy":
                    self.began[parent["msg_id"]] = message["header"]["date"]
                elif parent["msg_id"] in self.began:
                    self.cell.busy_s.append(
                        (message["header"]["date"] - self.began.pop(parent["msg_id"])).total_seconds()
                    )
            # The widgets' manager closes its control comm twice, of which the kernel tells on stderr.
            if message["msg_type"] in ("error", "stream") and not content.get("text", "").startswith("No such comm"):
                self.cell.errors.append(json.dumps(content))
            shown = {key: message[key] for key in ("msg_type", "content", "metadata", "parent_header")}
            text = json.dumps({**shown, "channel": channel, "buffers": []}, default=str)
            for socket in list(self.sockets):
                await socket.write_message(text)


@contextlib.contextmanager
def live_cell(code: str) -> Iterator[Cell]:
    """A cell whose last expression is a widget, served while the block runs."""
    server = _Server(code)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        assert server.up.wait(180), "the kernel does not start"
        if server.failed is not None:
            raise server.failed
        assert server.cell is not None
        yield server.cell
    finally:
        server.stop.set()
        thread.join(30)
