package io.pocketmq.interop;

import java.util.concurrent.Callable;

/**
 * Ends a client's shutdown without its idle wait: NettyEventExecutor polls its queue for three seconds at a time, and a
 * shutdown joins it. An interrupt ends the poll; the thread catches it, logs it and looks whether it shall stop.
 */
final class Nudge {
    private Nudge() {}

    static <T> T during(Callable<T> work) throws Exception {
        Thread nudging = new Thread(Nudge::nudge, "nudge");
        nudging.setDaemon(true);
        nudging.start();
        try {
            return work.call();
        } finally {
            nudging.interrupt();
        }
    }

    private static void nudge() {
        try {
            while (true) {
                Thread.sleep(100);
                Thread[] threads = new Thread[Thread.activeCount() + 64];
                int count = Thread.enumerate(threads);
                for (int i = 0; i < count; i++) {
                    if (threads[i].getName().startsWith("NettyEventExecutor")) {
                        threads[i].interrupt();
                    }
                }
            }
        } catch (InterruptedException done) {
            Thread.currentThread().interrupt();
        }
    }
}
