package org.apache.kafka.common.utils;

/** The file connectors of 4.3 ask this class for their version; 4.4 has it elsewhere. */
public final class AppInfoParser {
    private AppInfoParser() {
    }

    public static String getVersion() {
        return "4.3.0";
    }
}
