package org.apache.rocketmq.example.benchmark;

import io.pocketmq.interop.Stopwatch;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Ours, found before the official class of this name: the official generators' option {@code -a true} then hangs our
 * stopwatch into the client instead of a signer of requests. The generators themselves are the official ones, unchanged.
 */
public class AclClient {
    public static final String ACL_ACCESS_KEY = "";
    public static final String ACL_SECRET_KEY = "";

    public static RPCHook getAclRPCHook() {
        return new Stopwatch();
    }

    public static RPCHook getAclRPCHook(String accessKey, String secretKey) {
        return new Stopwatch();
    }
}
